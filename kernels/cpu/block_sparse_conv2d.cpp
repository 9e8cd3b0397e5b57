#include <bs/kernels/cpu/block_sparse_conv2d.h>
#include <bs/kernels/cpu/conv2d_result.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <type_traits>

namespace bs::cpu {

namespace {

constexpr int rows_slot = 4, blocks_slot = 6;

/// All blocks as right operands, one behind the other: a row is a channel of the source, a column
/// one of the result. `forward`: the source's channels are the blocks' columns.
template <class W, class T>
W* pack_blocks(const SparseTensor& weight, bool forward) {
  const int64_t block = weight.layout->block(), size = packed_b_size<W>(block, block);
  W* packed = scratch<W>(blocks_slot, weight.layout->nnz() * size);
  const T* values = weight.values.data<T>();
  const int64_t grain = ceil_div(elementwise_grain, block * block);
  parallel_for(weight.layout->nnz(), grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      pack_b<W>(block, block, values + i * block * block, forward ? 1 : block, forward ? block : 1,
                packed + i * size);
  });
  return packed;
}

/// A pass over the blocks there are. What ConvGather's pixels see is packed for some units of the
/// depth, each of which some block needs. Then each block of channels of the result is one chain of
/// products with those units that it has blocks for.
template <class W, class T>
class SparseGather {
 public:
  SparseGather(const ConvGather& g, const Tensor& source, int64_t block, const W* packed,
               const Conv2dEpilogue& e, const Tensor& result)
      : g_(g),
        source_(source.data<T>()),
        from_(source),
        block_(block),
        packed_(packed),
        result_(g, e, result) {}

  void run(const ConvBlock& b, const ConvPhaseBlocks& blocks) const {
    const ConvSums<W> c = result_.sums(b);
    const auto first = static_cast<size_t>(b.channel / block_);
    const auto count = static_cast<size_t>(b.channels / block_);
    std::vector<int32_t> next(blocks.offsets.begin() + static_cast<ptrdiff_t>(first),
                              blocks.offsets.begin() + static_cast<ptrdiff_t>(first + count));
    std::vector<PanelPair<W>> chain;
    const auto units = static_cast<int64_t>(blocks.units.size());
    const int64_t step = even_step(units, std::max<int64_t>(1, Tile<W>::depth / block_), 1);
    for (int64_t u = 0; u < units; u += step) {
      const int64_t end = std::min(units, u + step);
      const Rows a = rows(b, blocks, u, end);
      for (size_t i = 0; i < count; ++i) {
        const int32_t begin = blocks.offsets[first + i], last = blocks.offsets[first + i + 1];
        const bool adds = next[i] > begin;
        chain.clear();
        for (; next[i] < last && blocks.uses[static_cast<size_t>(next[i])].unit < end; ++next[i])
          chain.push_back(pair(a, blocks.uses[static_cast<size_t>(next[i])], u));
        if (!chain.empty())
          multiply_panels(b.pixels, block_, block_, std::span<const PanelPair<W>>(chain), a.layout,
                          packed_b<W>(block_), W(1), W(adds), lane(c, i), c.row, c.col);
      }
    }
    for (size_t i = 0; i < count; ++i)
      if (blocks.offsets[first + i] == blocks.offsets[first + i + 1]) clear(b, c, i);
    result_.finish(b, c);
  }

 private:
  struct Rows {
    const W* data;
    PanelLayout layout;
    bool packed;  ///< from the first unit on, else the channels of a lone tap
  };

  W* lane(const ConvSums<W>& c, size_t i) const {
    return c.data + static_cast<int64_t>(i) * block_ * c.col;
  }

  /// A channel of the result that no block leads to.
  void clear(const ConvBlock& b, const ConvSums<W>& c, size_t i) const {
    for (int64_t row = 0; row < b.pixels; ++row)
      for (int64_t j = 0; j < block_; ++j) lane(c, i)[row * c.row + j * c.col] = W(0);
  }

  PanelPair<W> pair(const Rows& a, const ConvBlockUse& use, int64_t first) const {
    const int64_t at = a.packed ? use.unit - first : use.in;
    return {a.data + at * block_, packed_ + use.number * packed_b_size<W>(block_, block_)};
  }

  /// Units [first, end) of the depth: where they lie, if a lone tap stays inside of the image and
  /// pixels lie evenly, else packed.
  Rows rows(const ConvBlock& b, const ConvPhaseBlocks& blocks, int64_t first, int64_t end) const {
    if constexpr (std::is_same_v<T, W>) {
      const ConvTap& tap = b.phase.taps.front();
      if (b.phase.taps.size() == 1 && g_.stays_inside(b.phase, tap) && b.is_even(from_, g_.read)) {
        const auto [n, p, q] = b.phase.pixel(b.first);
        const ConvPixel at{n, p * g_.read.h + tap.h, q * g_.read.w + tap.w};
        return {source_ + pixel_offset(at, from_), direct_a<W>(g_.read.w * from_.w, 1), false};
      }
    }
    const int64_t depth = (end - first) * block_;
    W* packed = scratch<W>(rows_slot, round_up(b.pixels, Tile<W>::rows) * depth);
    for (int64_t i = 0; i < b.pixels; ++i) {
      const auto [n, p, q] = b.phase.pixel(b.first + i);
      W* row = packed + i * depth;
      for (int64_t u = first; u < end; ++u, row += block_) {
        const ConvBlockUnit& unit = blocks.units[static_cast<size_t>(u)];
        const ConvTap& tap = b.phase.taps[static_cast<size_t>(unit.tap)];
        const int64_t h = p * g_.read.h + tap.h, w = q * g_.read.w + tap.w;
        if (h < 0 || h >= g_.h || w < 0 || w >= g_.w) {
          std::fill_n(row, block_, W(0));
        } else {
          widen(block_, source_ + pixel_offset({n, h, w}, from_) + unit.in * block_, row);
        }
      }
    }
    return {packed, {Tile<W>::rows * depth, 1, depth, true}, true};
  }

  const ConvGather& g_;
  const T* source_;
  Strides4 from_;
  int64_t block_;
  const W* packed_;
  ConvResult<W, T> result_;
};

void run_sparse_gather(const ConvGather& g, const std::vector<ConvPhaseBlocks>& blocks,
                       const Tensor& source, const SparseTensor& weight, bool forward,
                       const Conv2dEpilogue& epilogue, const Tensor& result) {
  const int64_t block = weight.layout->block();
  double work = 0;
  for (size_t i = 0; i < blocks.size(); ++i)
    work += static_cast<double>(g.n * g.phases[i].pixels()) *
            static_cast<double>(blocks[i].uses.size()) * static_cast<double>(block * block);
  const int team = team_size(work, worth_a_conv_thread);
  visit_floating("block_sparse_conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const W* packed = pack_blocks<W, T>(weight, forward);
    const SparseGather<W, T> gather(g, source, block, packed, epilogue, result);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const ConvPhase& phase = g.phases[i];
      const ConvCut c = ConvCut::of<W>(g, phase, Strides4(result), team, block);
      parallel_each(c.blocks(1), team,
                    [&](int64_t j) { gather.run(c.block(g, phase, j), blocks[i]); });
    }
  });
}

/// The blocks of a phase by their place in it. `lines(out, add)` calls add(tap, in, number) for a
/// block of the result's channels, in ascending order of (tap, in).
template <class Lines>
ConvPhaseBlocks phase_blocks(int64_t taps, int64_t ins, int64_t outs, const Lines& lines) {
  ConvPhaseBlocks b;
  b.offsets.push_back(0);
  for (int64_t out = 0; out < outs; ++out) {
    lines(out, [&](int64_t tap, int32_t in, int32_t number) {
      b.uses.push_back({static_cast<int32_t>(tap * ins) + in, in, number});
    });
    b.offsets.push_back(static_cast<int32_t>(b.uses.size()));
  }
  std::vector<int32_t> unit_of(static_cast<size_t>(taps * ins), -1);
  for (const ConvBlockUse& use : b.uses) unit_of[static_cast<size_t>(use.unit)] = 0;
  for (int64_t i = 0; i < taps * ins; ++i) {
    int32_t& unit = unit_of[static_cast<size_t>(i)];
    if (unit < 0) continue;
    unit = static_cast<int32_t>(b.units.size());
    b.units.push_back({static_cast<int32_t>(i / ins), static_cast<int32_t>(i % ins)});
  }
  for (ConvBlockUse& use : b.uses) use.unit = unit_of[static_cast<size_t>(use.unit)];
  return b;
}

}  // namespace

ConvPhaseBlocks forward_blocks(const Conv2dProblem& d, const Layout& layout) {
  const LayoutView l = layout.view(Device::cpu());
  const auto ins = static_cast<int32_t>(d.c / l.block);
  return phase_blocks(d.r * d.s, ins, l.rows, [&](int64_t out, const auto& add) {
    for (int32_t at = l.row_offsets[out]; at < l.row_offsets[out + 1]; ++at)
      add(l.col_of[at] / ins, l.col_of[at] % ins, at);
  });
}

std::vector<ConvPhaseBlocks> backward_blocks(const Conv2dProblem& d, const ConvGather& g,
                                             const Layout& layout) {
  const LayoutView l = layout.view(Device::cpu());
  const int64_t outs = d.c / l.block;
  std::vector<ConvPhaseBlocks> all;
  for (const ConvPhase& phase : g.phases) {
    const auto taps = static_cast<int64_t>(phase.taps.size());
    all.push_back(phase_blocks(taps, l.rows, outs, [&](int64_t out, const auto& add) {
      for (int64_t t = 0; t < taps; ++t) {
        const ConvTap& tap = phase.taps[static_cast<size_t>(t)];
        const int64_t column = (tap.r * d.s + tap.s) * outs + out;
        for (int32_t at = l.col_offsets[column]; at < l.col_offsets[column + 1]; ++at)
          add(t, l.transposed_row[at], l.transposed[at]);
      }
    }));
  }
  return all;
}

void block_sparse_conv2d(const Conv2dProblem& d, const Tensor& x, const SparseTensor& weight,
                         const Tensor& bias, const Tensor& y, Stream) {
  run_sparse_gather(forward_gather(d, {}), {forward_blocks(d, *weight.layout)}, channel_runs(x),
                    weight, true, {.bias = bias}, y);
}

void block_sparse_conv2d_backward_x(const Conv2dProblem& d, const Tensor& dy,
                                    const SparseTensor& weight, const Tensor& dx, Stream) {
  const ConvGather g = backward_gather(d);
  run_sparse_gather(g, backward_blocks(d, g, *weight.layout), channel_runs(dy), weight, false, {},
                    dx);
}

}  // namespace bs::cpu

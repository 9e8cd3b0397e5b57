#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_result.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

namespace bs::cpu {

namespace {

constexpr int rows_slot = 4, weight_slot = 6;

/// The steps of the depth that begin with each place of a filter [r, s]; -1 where no phase reads
/// it.
std::vector<int64_t> first_steps(const ConvGather& g, int64_t r, int64_t s) {
  std::vector<int64_t> steps(static_cast<size_t>(r * s), -1);
  for (const ConvPhase& phase : g.phases)
    for (const ConvTap& tap : phase.taps)
      for (int64_t i = 0; i < g.width; ++i)
        steps[static_cast<size_t>(tap.r * s + tap.s + i)] = tap.first + i * g.in;
  return steps;
}

/// One panel of the weights: `lanes` channels of the result from `weight` on.
template <class W, class T>
void pack_weight_panel(const ConvGather& g, const T* weight, const ConvWeight& at, int64_t lanes,
                       int64_t filter_cols, std::span<const int64_t> steps, W* panel) {
  constexpr int64_t NR = Tile<W>::cols;
  constexpr int64_t channels = 128;
  const auto places = static_cast<int64_t>(steps.size());
  const bool together = at.s == 1 && at.r == filter_cols && at.in == places;
  if (places == 1 || !together) {
    for (int64_t place = 0; place < places; ++place)
      if (const int64_t step = steps[static_cast<size_t>(place)]; step >= 0)
        pack_panels<Side::right>(0, 1, lanes, g.in,
                                 weight + place / filter_cols * at.r + place % filter_cols * at.s,
                                 at.out, at.in, panel + step * NR);
    return;
  }
  // The places of a channel are neighbours in memory. Some channels are turned around as they lie,
  // and then their lines go to where they belong.
  W* lines = scratch<W>(rows_slot, channels * places * NR);
  for (int64_t c = 0; c < g.in; c += channels) {
    const int64_t count = std::min(channels, g.in - c) * places;
    pack_panels<Side::right>(0, 1, lanes, count, weight + c * at.in, at.out, 1, lines);
    for (int64_t l = 0; l < count; ++l)
      if (const int64_t step = steps[static_cast<size_t>(l % places)]; step >= 0) {
        W* const line = panel + (step + c + l / places) * NR;
        for (int64_t i = 0; i < NR; ++i) line[i] = lines[l * NR + i];
      }
  }
}

/// The weights of all groups as right operands, one behind the other. A row is a channel of the
/// source at a tap, a column a channel of the result.
template <class W, class T>
W* pack_weights(const ConvGather& g, const Tensor& weight, const ConvWeight& at, int64_t depth,
                int team) {
  constexpr int64_t NR = Tile<W>::cols;
  W* packed = scratch<W>(weight_slot, g.groups * packed_b_size<W>(depth, g.out));
  const int64_t panels = ceil_div(g.out, NR), filter_cols = weight.size(3);
  const std::vector<int64_t> steps = first_steps(g, weight.size(2), filter_cols);
  parallel_each(g.groups * panels, team, [&](int64_t i) {
    const int64_t group = i / panels, j = i % panels * NR;
    pack_weight_panel<W>(g, weight.data<T>() + group * at.group + j * at.out, at,
                         std::min(NR, g.out - j), filter_cols, steps, packed + i * NR * depth);
  });
  return packed;
}

template <class W, class T>
class Gather {
 public:
  Gather(const ConvGather& g, const Tensor& source, const W* weights, int64_t depth,
         const Conv2dEpilogue& e, const Tensor& result)
      : g_(g),
        source_(source.data<T>()),
        from_(source),
        weights_(weights),
        depth_(depth),
        result_(g, e, result) {}

  void run(const ConvBlock& b) const {
    const int64_t all = static_cast<int64_t>(b.phase.taps.size()) * g_.run();
    const int64_t begin = all > 0 ? b.phase.taps.front().first : 0;
    const int64_t step = even_step(all, Tile<W>::depth, 8);
    const ConvSums<W> c = result_.sums(b);
    const W* weights = weights_ + b.group * packed_b_size<W>(depth_, g_.out) + b.channel * depth_;
    for (int64_t l = 0; l < all; l += step) {
      const int64_t depth = std::min(step, all - l);
      const Rows a = rows(b, begin + l, depth);
      const PanelPair<W> pair{a.data, weights + (begin + l) * Tile<W>::cols};
      multiply_panels(b.pixels, b.channels, depth, std::span<const PanelPair<W>>(&pair, 1),
                      a.layout, packed_b<W>(depth_), W(1), W(l == 0 ? 0 : 1), c.data, c.row, c.col);
    }
    if (all == 0) std::fill_n(c.data, b.pixels * b.channels, W(0));
    result_.finish(b, c);
  }

 private:
  struct Rows {
    const W* data;
    PanelLayout layout;
  };

  /// Steps [l, l + depth) of the depth: where they lie, if a lone tap stays inside of the image and
  /// pixels lie evenly, else packed.
  Rows rows(const ConvBlock& b, int64_t l, int64_t depth) const {
    if constexpr (std::is_same_v<T, W>) {
      const ConvTap& tap = b.phase.taps.front();
      if (b.phase.taps.size() == 1 && g_.width == 1 && g_.stays_inside(b.phase, tap) &&
          b.is_even(from_, g_.read)) {
        const auto [n, p, q] = b.phase.pixel(b.first);
        const int64_t at = pixel_offset({n, p * g_.read.h + tap.h, q * g_.read.w + tap.w}, from_) +
                           b.group * g_.in;
        return {source_ + at + l - tap.first, direct_a<W>(g_.read.w * from_.w, 1)};
      }
    }
    W* packed = scratch<W>(rows_slot, round_up(b.pixels, Tile<W>::rows) * depth);
    ConvPixel at = b.phase.pixel(b.first);
    for (int64_t i = 0; i < b.pixels; ++i, b.phase.advance(at))
      gather_row(b, at, l, depth, packed + i * depth);
    return {packed, {Tile<W>::rows * depth, 1, depth, true}};
  }

  /// Steps [l, l + depth) of one pixel's row.
  void gather_row(const ConvBlock& b, const ConvPixel& at, int64_t l, int64_t depth, W* row) const {
    const auto [n, p, q] = at;
    const int64_t run = g_.run(), end = l + depth;
    const T* image = source_ + n * from_.n + b.group * g_.in;
    for (int64_t t = (l - b.phase.taps.front().first) / run; l < end; ++t) {
      const ConvTap& tap = b.phase.taps[static_cast<size_t>(t)];
      const int64_t h = p * g_.read.h + tap.h, w = q * g_.read.w + tap.w;
      const int64_t skip = l - tap.first, count = std::min(run - skip, end - l);
      if (h < 0 || h >= g_.h || w <= -g_.width || w >= g_.w) {
        std::fill_n(row, count, W(0));
      } else if (w >= 0 && w + g_.width <= g_.w) {
        widen(count, image + h * from_.h + w * from_.w + skip, row);
      } else {
        const T* from = image + h * from_.h;
        for (int64_t j = 0; j < count; ++j) {
          const int64_t column = w + (skip + j) / g_.in;
          const bool inside = column >= 0 && column < g_.w;
          row[j] = inside ? convert<W>(from[column * from_.w + (skip + j) % g_.in]) : W(0);
        }
      }
      row += count;
      l += count;
    }
  }

  const ConvGather& g_;
  const T* source_;
  Strides4 from_;
  const W* weights_;
  int64_t depth_;
  ConvResult<W, T> result_;
};

}  // namespace

void run_gather(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result) {
  int64_t depth = 0;
  for (const ConvPhase& phase : g.phases)
    depth += static_cast<int64_t>(phase.taps.size()) * g.run();
  const int team = team_size(g.products(), worth_a_conv_thread);
  visit_floating("conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const W* weights = pack_weights<W, T>(g, weight, strides, depth, team);
    const Gather<W, T> gather(g, source, weights, depth, epilogue, result);
    for (const ConvPhase& phase : g.phases) {
      const ConvCut c = ConvCut::of<W>(g, phase, Strides4(result), team, Tile<W>::cols);
      parallel_each(c.blocks(g.groups), team, [&](int64_t i) { gather.run(c.block(g, phase, i)); });
    }
  });
}

}  // namespace bs::cpu

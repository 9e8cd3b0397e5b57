#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_epilogue.h>
#include <bs/kernels/cpu/panels.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <array>
#include <type_traits>

namespace bs::cpu {

namespace {

constexpr int rows_slot = 4, sums_slot = 5, weight_slot = 6;
constexpr int64_t most_rows = 256;  ///< pixels of a block

constexpr int64_t even_step(int64_t n, int64_t limit, int64_t unit) {
  return round_up(ceil_div(n, std::max<int64_t>(1, ceil_div(n, limit))), unit);
}

/// The weights of all groups as right operands, one behind the other; a row is a channel of the
/// source at a tap, a column a channel of the result.
template <class W, class T>
W* pack_weights(const ConvGather& g, const T* weight, const ConvWeight& at, int64_t depth,
                int team) {
  constexpr int64_t NR = Tile<W>::cols;
  W* packed = scratch<W>(weight_slot, g.groups * packed_b_size<W>(depth, g.out));
  const int64_t panels = ceil_div(g.out, NR);
  parallel_each(g.groups * panels, team, [&](int64_t i) {
    const int64_t group = i / panels, j = i % panels * NR;
    W* panel = packed + i * NR * depth;
    const T* src = weight + group * at.group + j * at.out;
    for (const ConvPhase& phase : g.phases)
      for (const ConvTap& tap : phase.taps)
        for (int64_t s = 0; s < g.width; ++s)
          pack_panels<Side::right>(0, 1, std::min(NR, g.out - j), g.in,
                                   src + tap.r * at.r + (tap.s + s) * at.s, at.out, at.in,
                                   panel + (tap.first + s * g.in) * NR);
  });
  return packed;
}

/// The share of a pass that one thread computes at a time.
struct ConvBlock {
  const ConvPhase& phase;
  int64_t group, first, pixels;  ///< pixels of the phase from `first` on
  int64_t channel, channels;     ///< of the result, within the group
};

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
        epilogue_(e),
        result_(result.data<T>()),
        to_(result) {}

  void run(const ConvBlock& b) const {
    const int64_t all = static_cast<int64_t>(b.phase.taps.size()) * g_.run();
    const int64_t begin = all > 0 ? b.phase.taps.front().first : 0;
    const int64_t step = even_step(all, Tile<W>::depth, 8);
    const Target c = target(b);
    const W* weights = weights_ + b.group * packed_b_size<W>(depth_, g_.out) + b.channel * depth_;
    for (int64_t l = 0; l < all; l += step) {
      const int64_t depth = std::min(step, all - l);
      const Rows a = rows(b, begin + l, depth);
      const PanelPair<W> pair{a.data, weights + (begin + l) * Tile<W>::cols};
      multiply_panels(b.pixels, b.channels, depth, std::span<const PanelPair<W>>(&pair, 1),
                      a.layout, packed_b<W>(depth_), W(1), W(l == 0 ? 0 : 1), c.sums, c.row, c.col);
    }
    if (all == 0) std::fill_n(c.sums, b.pixels * b.channels, W(0));
    finish(b, c);
  }

 private:
  struct Target {
    W* sums;
    int64_t row, col;
    bool direct;
  };
  struct Rows {
    const W* data;
    PanelLayout layout;
  };

  static int64_t offset(const ConvPixel& at, const Strides4& s) {
    return at.n * s.n + at.h * s.h + at.w * s.w;
  }

  /// Whether the pixels of a block lie evenly in a tensor that has `step` between them.
  static bool is_even(const ConvBlock& b, const Strides4& s, Extent2 step) {
    const int64_t image = b.phase.pixels(), pitch = step.w * s.w;
    if (b.first % b.phase.cols + b.pixels <= b.phase.cols) return true;
    if (step.h * s.h != b.phase.cols * pitch) return false;
    return b.first % image + b.pixels <= image || s.n == image * pitch;
  }

  /// Where the sums go: to the result itself, if its pixels lie evenly and its type can hold them.
  Target target(const ConvBlock& b) const {
    if constexpr (std::is_same_v<T, W>) {
      const int64_t pitch = g_.write.w * to_.w;
      if (!b.phase.taps.empty() && (to_.c == 1 || pitch == 1) && is_even(b, to_, g_.write)) {
        W* at = result_ + offset(g_.target(b.phase, b.first), to_) +
                (b.group * g_.out + b.channel) * to_.c;
        return {at, pitch, to_.c, true};
      }
    }
    return {scratch<W>(sums_slot, b.pixels * b.channels), b.channels, 1, false};
  }

  /// Steps [l, l + depth) of the depth: where they lie, if a lone tap stays inside of the image and
  /// pixels lie evenly, else packed.
  Rows rows(const ConvBlock& b, int64_t l, int64_t depth) const {
    if constexpr (std::is_same_v<T, W>) {
      const ConvTap& tap = b.phase.taps.front();
      const bool inside = tap.h >= 0 && tap.h + (b.phase.rows - 1) * g_.read.h < g_.h &&
                          tap.w >= 0 && tap.w + (b.phase.cols - 1) * g_.read.w < g_.w;
      if (b.phase.taps.size() == 1 && g_.width == 1 && inside && is_even(b, from_, g_.read)) {
        const auto [n, p, q] = b.phase.pixel(b.first);
        const int64_t at =
            offset({n, p * g_.read.h + tap.h, q * g_.read.w + tap.w}, from_) + b.group * g_.in;
        return {source_ + at + l - tap.first, direct_a<W>(g_.read.w * from_.w, 1)};
      }
    }
    W* packed = scratch<W>(rows_slot, round_up(b.pixels, Tile<W>::rows) * depth);
    for (int64_t i = 0; i < b.pixels; ++i) gather_row(b, i, l, depth, packed + i * depth);
    return {packed, {Tile<W>::rows * depth, 1, depth, true}};
  }

  /// Steps [l, l + depth) of one pixel's row.
  void gather_row(const ConvBlock& b, int64_t i, int64_t l, int64_t depth, W* row) const {
    const auto [n, p, q] = b.phase.pixel(b.first + i);
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
          row[j] = inside ? to<W>(from[column * from_.w + (skip + j) % g_.in]) : W(0);
        }
      }
      row += count;
      l += count;
    }
  }

  /// Applies the epilogue, and stores what is not where it belongs.
  void finish(const ConvBlock& b, const Target& c) const {
    if (c.direct && epilogue_.is_identity()) return;
    const int64_t channel = b.group * g_.out + b.channel;
    if (c.col != 1) {  // the result's own rows of pixels, which are neighbours
      const auto place = [&](int64_t i) { return g_.target(b.phase, b.first + i); };
      for (int64_t j = 0; j < b.channels; ++j)
        epilogue_.pixels(channel + j, b.pixels, place, c.sums + j * c.col);
      return;
    }
    for (int64_t i = 0; i < b.pixels; ++i) {
      W* sums = c.sums + i * c.row;
      const ConvPixel at = g_.target(b.phase, b.first + i);
      epilogue_.channels(channel, b.channels, at.n, at.h, at.w, sums);
      if (!c.direct)
        store_line(b.channels, sums, result_ + offset(at, to_) + channel * to_.c, to_.c);
    }
  }

  const ConvGather& g_;
  const T* source_;
  Strides4 from_;
  const W* weights_;
  int64_t depth_;
  ConvEpilogue<W, T> epilogue_;
  T* result_;
  Strides4 to_;
};

/// How the pixels of a phase and the channels of the result are cut into blocks. Images are cut one
/// by one where pixels do not lie evenly from one to the next.
struct BlockCut {
  int64_t pixels, pieces;  ///< of so many pixels each
  int64_t rows, row_blocks, lanes, lane_blocks;
};

template <class W>
BlockCut cut(const ConvGather& g, const ConvPhase& phase, const Strides4& result, int team) {
  constexpr int64_t MR = Tile<W>::rows, NR = Tile<W>::cols;
  const int64_t image = phase.rows * phase.cols;
  BlockCut c{};
  const bool even = result.c == 1 || result.n == image;
  c.pixels = even ? g.n * image : image;
  c.pieces = even ? 1 : g.n;
  const int64_t fair = std::max(6 * MR, ceil_div(c.pixels * c.pieces, team));
  c.rows = even_step(c.pixels, std::min(most_rows, fair), MR);
  c.row_blocks = ceil_div(c.pixels, c.rows) * c.pieces;
  c.lanes = round_up(g.out, NR);
  while (team > 1 && c.row_blocks * g.groups * ceil_div(g.out, c.lanes) < team && c.lanes > 2 * NR)
    c.lanes = even_step(c.lanes, (c.lanes + 1) / 2, NR);
  c.lane_blocks = ceil_div(g.out, c.lanes);
  return c;
}

}  // namespace

void run_gather(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result) {
  int64_t depth = 0;
  double work = 0;
  for (const ConvPhase& phase : g.phases) {
    const int64_t steps = static_cast<int64_t>(phase.taps.size()) * g.run();
    depth += steps;
    work += static_cast<double>(g.n * phase.rows * phase.cols) * static_cast<double>(steps) *
            static_cast<double>(g.groups * g.out);
  }
  const int team = team_size(work, worth_a_conv_thread);
  visit_floating("conv2d", result.dtype(), [&]<class T>(Type<T>) {
    using W = Wide<T>;
    const W* weights = pack_weights<W>(g, weight.data<T>(), strides, depth, team);
    const Gather<W, T> gather(g, source, weights, depth, epilogue, result);
    for (const ConvPhase& phase : g.phases) {
      const BlockCut c = cut<W>(g, phase, Strides4(result), team);
      const int64_t each = c.row_blocks / c.pieces;
      parallel_each(c.row_blocks * c.lane_blocks * g.groups, team, [&](int64_t i) {
        const int64_t at = i % each * c.rows;
        const int64_t k0 = i / c.row_blocks % c.lane_blocks * c.lanes;
        gather.run({phase, i / (c.row_blocks * c.lane_blocks),
                    i % c.row_blocks / each * c.pixels + at, std::min(c.rows, c.pixels - at), k0,
                    std::min(c.lanes, g.out - k0)});
      });
    }
  });
}

}  // namespace bs::cpu

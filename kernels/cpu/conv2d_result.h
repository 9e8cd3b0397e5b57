#pragma once
/** @file Blocks of pixels and channels of a convolution's result on the CPU: how a pass is cut into
 *  them, and how their sums reach the result. */
#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/conv2d_epilogue.h>
#include <bs/kernels/cpu/panels.h>

#include <type_traits>

namespace bs::cpu {

/** @brief The share of a pass that one thread computes at a time. */
struct ConvBlock {
  const ConvPhase& phase;
  int64_t group, first, pixels;  ///< pixels of the phase from `first` on
  int64_t channel, channels;     ///< of the result, within the group

  /** @brief Whether its pixels lie evenly in a tensor that has `step` between them. */
  bool is_even(const Strides4& s, Extent2 step) const {
    const int64_t image = phase.pixels(), pitch = step.w * s.w;
    if (first % phase.cols + pixels <= phase.cols) return true;
    if (step.h * s.h != phase.cols * pitch) return false;
    return first % image + pixels <= image || s.n == image * pitch;
  }
};

/** @brief Where a block's sums are: (pixel i, channel j) at `data + i * row + j * col`. */
template <class W>
struct ConvSums {
  W* data;
  int64_t row, col;
  bool direct;  ///< in the result itself
};

/** @brief A result of type T, whose sums are computed in W. */
template <class W, class T>
class ConvResult {
 public:
  ConvResult(const ConvGather& g, const Conv2dEpilogue& e, const Tensor& result)
      : g_(g), epilogue_(e), result_(result.data<T>()), to_(result) {}

  /// The result itself, if its pixels lie evenly and its type can hold sums, else this thread's
  /// scratch.
  ConvSums<W> sums(const ConvBlock& b) const {
    if constexpr (std::is_same_v<T, W>) {
      const int64_t pitch = g_.write.w * to_.w;
      if (!b.phase.taps.empty() && (to_.c == 1 || pitch == 1) && b.is_even(to_, g_.write)) {
        W* at = result_ + pixel_offset(g_.target(b.phase, b.first), to_) +
                (b.group * g_.out + b.channel) * to_.c;
        return {at, pitch, to_.c, true};
      }
    }
    return {scratch<W>(sums_slot, b.pixels * b.channels), b.channels, 1, false};
  }

  /// Applies the epilogue, and stores what is not where it belongs.
  void finish(const ConvBlock& b, const ConvSums<W>& c) const {
    if (c.direct && epilogue_.is_identity()) return;
    const int64_t channel = b.group * g_.out + b.channel;
    if (c.col != 1) {  // the result's own rows of pixels, which are neighbours
      const auto place = [&](int64_t i) { return g_.target(b.phase, b.first + i); };
      for (int64_t j = 0; j < b.channels; ++j)
        epilogue_.pixels(channel + j, b.pixels, place, c.data + j * c.col);
      return;
    }
    ConvPixel at = b.phase.pixel(b.first);
    for (int64_t i = 0; i < b.pixels; ++i) {
      W* sums = c.data + i * c.row;
      const ConvPixel to = g_.target(b.phase, at);
      epilogue_.channels(channel, b.channels, to.n, to.h, to.w, sums);
      if (!c.direct)
        store_line(b.channels, sums, result_ + pixel_offset(to, to_) + channel * to_.c, to_.c);
      b.phase.advance(at);
    }
  }

 private:
  static constexpr int sums_slot = 5;

  const ConvGather& g_;
  ConvEpilogue<W, T> epilogue_;
  T* result_;
  Strides4 to_;
};

/** @brief How the pixels of a phase and the channels of the result are cut into blocks. Images are
 *  cut one by one where pixels do not lie evenly from one to the next. */
struct ConvCut {
  int64_t pixels, pieces;  ///< of so many pixels each
  int64_t rows, row_blocks, lanes, lane_blocks;

  static constexpr int64_t most_rows = 256;  ///< pixels of a block

  /** @param[in] unit channels that stay together */
  template <class W>
  static ConvCut of(const ConvGather& g, const ConvPhase& phase, const Strides4& result, int team,
                    int64_t unit) {
    constexpr int64_t MR = Tile<W>::rows;
    const int64_t image = phase.pixels();
    ConvCut c{};
    const bool even = result.c == 1 || result.n == image;
    c.pixels = even ? g.n * image : image;
    c.pieces = even ? 1 : g.n;
    const int64_t fair = std::max(6 * MR, ceil_div(c.pixels * c.pieces, team));
    int64_t cuts = ceil_div(c.pixels, std::min(most_rows, fair));
    if (cuts < 8 * team)
      cuts = round_up(cuts, team);  // else the last threads wait for a whole block
    c.rows = round_up(ceil_div(c.pixels, std::max<int64_t>(cuts, 1)), MR);
    c.row_blocks = ceil_div(c.pixels, c.rows) * c.pieces;
    c.lanes = round_up(g.out, unit);
    while (team > 1 && c.row_blocks * g.groups * ceil_div(g.out, c.lanes) < team &&
           c.lanes > 2 * unit)
      c.lanes = even_step(c.lanes, (c.lanes + 1) / 2, unit);
    c.lane_blocks = ceil_div(g.out, c.lanes);
    return c;
  }

  int64_t blocks(int64_t groups) const { return row_blocks * lane_blocks * groups; }
  ConvBlock block(const ConvGather& g, const ConvPhase& phase, int64_t i) const {
    const int64_t each = row_blocks / pieces, at = i % each * rows;
    const int64_t channel = i / row_blocks % lane_blocks * lanes;
    return {phase,
            i / (row_blocks * lane_blocks),
            i % row_blocks / each * pixels + at,
            std::min(rows, pixels - at),
            channel,
            std::min(lanes, g.out - channel)};
  }
};

}  // namespace bs::cpu

#pragma once
/** @file How convolutions walk their images on the CPU.
 *
 *  The forward and the gradient of x are one loop, a *gather*: pixels of the result are rows of a
 *  product whose depth runs through taps of the filter and channels of the source. Blocks of rows
 *  are packed in steps of the depth that fit a core's cache; nothing holds a whole image. */
#include <bs/kernels/conv2d.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <vector>

namespace bs::cpu {

/** @brief A place of the filter: where it reads, and where its weights lie in the depth. */
struct ConvTap {
  int64_t h = 0, w = 0;  ///< from a result's own pixel in the source to the one that is read
  int64_t r = 0, s = 0;  ///< in the filter
  int64_t first = 0;     ///< its first step of the depth
};

/** @brief A pixel of a batch of images. */
struct ConvPixel {
  int64_t n = 0, h = 0, w = 0;
};

/** @brief Where its first channel lies. */
constexpr int64_t pixel_offset(const ConvPixel& at, const Strides4& s) {
  return at.n * s.n + at.h * s.h + at.w * s.w;
}

/** @brief Pixels of the result that see the same taps: all, or those of one remainder of a stride.
 */
struct ConvPhase {
  int64_t rows = 0, cols = 0;  ///< pixels of an image
  int64_t top = 0, left = 0;   ///< the first pixel in the result
  std::vector<ConvTap> taps;

  int64_t pixels() const { return rows * cols; }  ///< of an image
  ConvPixel pixel(int64_t i) const { return {i / pixels(), i / cols % rows, i % cols}; }
  /** @brief To the next pixel, without a division. */
  void advance(ConvPixel& at) const {
    if (++at.w < cols) return;
    at.w = 0;
    if (++at.h < rows) return;
    at.h = 0;
    ++at.n;
  }
};

/** @brief One pass over a batch of images: the source's channels in, the result's out. */
struct ConvGather {
  int64_t n = 0, h = 0, w = 0;  ///< images of the source
  int64_t groups = 1;
  int64_t in = 0, out = 0;  ///< channels of a group
  int64_t width = 1;        ///< neighbouring columns of the filter that a tap reads as one run
  Extent2 read, write;  ///< from a pixel of the result to the next: in the source, in the result
  std::vector<ConvPhase> phases;

  int64_t run() const { return in * width; }  ///< steps of the depth of a tap
  double products() const {                   ///< multiply-adds, those with padding included
    double sum = 0;
    for (const ConvPhase& phase : phases)
      sum += static_cast<double>(n * phase.pixels() * run() * groups * out) *
             static_cast<double>(phase.taps.size());
    return sum;
  }
  /** @brief Whether a tap reads nothing but pixels of the source. */
  bool stays_inside(const ConvPhase& phase, const ConvTap& tap) const {
    return tap.h >= 0 && tap.h + (phase.rows - 1) * read.h < h && tap.w >= 0 &&
           tap.w + (phase.cols - 1) * read.w < w;
  }
  bool is_depthwise() const { return in == 1 && out == 1; }
  /** @brief Where a pixel of a phase lies in the result. */
  ConvPixel target(const ConvPhase& phase, const ConvPixel& at) const {
    return {at.n, phase.top + at.h * write.h, phase.left + at.w * write.w};
  }
  ConvPixel target(const ConvPhase& phase, int64_t i) const {
    return target(phase, phase.pixel(i));
  }
};

/** @param[in] source strides of x, which decide whether a tap may read a run of columns; {}: it may
 *  not */
ConvGather forward_gather(const Conv2dProblem& d, const Strides4& source);
ConvGather backward_gather(const Conv2dProblem& d);

/** @brief x itself where neighbours in memory are channels, pixels lying anywhere, else a copy. */
Tensor channel_runs(const Tensor& x);

/** @brief Where a group's weight for (channel in, channel out) lies, besides r and s. */
struct ConvWeight {
  int64_t group = 0, in = 0, out = 0, r = 0, s = 0;
};

/** @brief result = epilogue(gathered source * weight). */
void run_gather(const ConvGather& g, const Tensor& source, const Tensor& weight,
                const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result);
/** @brief The same for groups of one channel in and one out. */
void run_depthwise(const ConvGather& g, const Tensor& source, const Tensor& weight,
                   const ConvWeight& strides, const Conv2dEpilogue& epilogue, const Tensor& result);
/** @brief The gradient of a depthwise weight [C, 1, R, S]. */
void depthwise_backward_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                          const Tensor& dweight);

/** @brief n in equal steps of at most `limit`, which are multiples of `unit`. */
constexpr int64_t even_step(int64_t n, int64_t limit, int64_t unit) {
  return round_up(ceil_div(n, std::max<int64_t>(1, ceil_div(n, limit))), unit);
}

inline constexpr double worth_a_conv_thread = 1 << 20;  ///< multiply-adds that pay for waking one

}  // namespace bs::cpu

#pragma once
/** @file Frames: parts of an image, copied once with the zeros around it, where convolutions of few
 *  channels read every tap in place. */
#include <bs/kernels/cpu/conv2d.h>
#include <bs/kernels/cpu/convert.h>

#include <algorithm>
#include <vector>

namespace bs::cpu {

/** @brief A tap of one column. */
struct DirectTap {
  int64_t r, s, h, w;  ///< in the filter, and from a result's pixel in the source
};

inline std::vector<DirectTap> taps_of(const ConvGather& g, const ConvPhase& phase) {
  std::vector<DirectTap> taps;
  for (const ConvTap& tap : phase.taps)
    for (int64_t i = 0; i < g.width; ++i) taps.push_back({tap.r, tap.s + i, tap.h, tap.w + i});
  return taps;
}

/** @brief How the pixels of a phase are cut into strips of whole rows, and what a strip reads. */
class Frame {
 public:
  Frame(const ConvGather& g, const ConvPhase& phase, const std::vector<DirectTap>& taps)
      : step_(g.read.h), strip_(phase.rows) {
    if (taps.empty() || phase.pixels() == 0) return;
    int64_t bottom = top_ = taps[0].h, right = left_ = taps[0].w;
    for (const DirectTap& tap : taps) {
      top_ = std::min(top_, tap.h), bottom = std::max(bottom, tap.h);
      left_ = std::min(left_, tap.w), right = std::max(right, tap.w);
    }
    span_ = bottom - top_ + 1;
    cols_ = right - left_ + (phase.cols - 1) * g.read.w + 1;
    const int64_t spare = most / (cols_ * g.in) - span_;
    const int64_t rows = std::min(spare / step_ + 1, most / (phase.cols * g.out));
    strip_ = spare < 0 || rows < 1 ? 0 : even_step(phase.rows, rows, 1);
  }

  bool fits() const { return strip_ > 0; }
  int64_t strip() const { return strip_; }  ///< rows of results of a strip, the last one's left out
  int64_t strips(const ConvPhase& phase) const {
    return strip_ == 0 ? 0 : ceil_div(phase.rows, strip_);
  }

  int64_t size(int64_t channels) const { return rows(strip_) * cols_ * channels; }
  /** @brief From a pixel to that of the next row. */
  int64_t row(int64_t channels) const { return step_ * cols_ * channels; }
  int64_t offset(const DirectTap& tap, int64_t channels) const {
    return ((tap.h - top_) * cols_ + tap.w - left_) * channels;
  }

  /** @brief Copies what rows [first, first + count) of the results read.
   *  @param[in] image `channels` of it, neighbours in memory */
  template <class W, class T>
  void fill(const ConvGather& g, int64_t channels, const T* image, const Strides4& from,
            int64_t first, int64_t count, W* to) const {
    for (int64_t i = 0; i < rows(count); ++i) {
      const int64_t h = top_ + first * step_ + i;
      W* const row = to + i * cols_ * channels;
      const int64_t begin = std::clamp<int64_t>(-left_, 0, cols_);
      const int64_t end = h < 0 || h >= g.h ? begin : std::clamp(g.w - left_, begin, cols_);
      std::fill_n(row, begin * channels, W(0));
      if (from.w == channels) {
        if (end > begin)
          widen((end - begin) * channels, image + h * from.h + (left_ + begin) * from.w,
                row + begin * channels);
      } else {
        for (int64_t j = begin; j < end; ++j)
          widen(channels, image + h * from.h + (left_ + j) * from.w, row + j * channels);
      }
      std::fill_n(row + end * channels, (cols_ - end) * channels, W(0));
    }
  }

 private:
  static constexpr int64_t most = 32768;  ///< elements of a frame, and of its strip's results

  int64_t rows(int64_t results) const { return span_ == 0 ? 0 : (results - 1) * step_ + span_; }

  int64_t top_ = 0, left_ = 0;  ///< what the first result's first tap reads
  int64_t span_ = 0;            ///< rows that a row of results reads
  int64_t cols_ = 0, step_, strip_;
};

}  // namespace bs::cpu

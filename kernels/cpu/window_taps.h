#pragma once
// Which elements of a pooling's windows lie in the image.
#include <bs/kernels/max_pool2d.h>
#include <bs/lib/integers.h>

#include <array>
#include <span>

namespace bs::cpu {

/// An element of a window.
struct Tap {
  int64_t from;  ///< its first channel, from the window's first element
  int32_t number;
};

/// The elements of a window that lie in an image of channels: most windows have the same.
class Taps {
 public:
  Taps(const PoolWindows& o, const Shape& image)
      : o_(o), height_(image[1]), width_(image[2]), channels_(image[3]) {}

  /// Those of window (p, column), whose first element is at `origin`.
  std::span<const Tap> of(int64_t p, int64_t column, int64_t& origin) {
    const int64_t top = p * o_.stride.h - o_.padding.h, left = column * o_.stride.w - o_.padding.w;
    origin = (top * width_ + left) * channels_;
    const Range rows(top, o_.kernel.h, o_.dilation.h, height_);
    const Range columns(left, o_.kernel.w, o_.dilation.w, width_);
    if (rows != rows_ || columns != columns_) list(rows, columns);
    return {taps_.data(), count_};
  }

 private:
  /// Elements [begin, end) of a window along an axis.
  struct Range {
    int64_t begin = 0, end = 0;

    Range() = default;
    Range(int64_t first, int64_t kernel, int64_t dilation, int64_t extent) : end(kernel) {
      if (first < 0) begin = ceil_div(-first, dilation);
      if (first + (kernel - 1) * dilation >= extent) end = ceil_div(extent - first, dilation);
    }
    bool operator==(const Range&) const = default;
  };

  void list(const Range& rows, const Range& columns) {
    rows_ = rows;
    columns_ = columns;
    count_ = 0;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      for (int64_t s = columns.begin; s < columns.end; ++s)
        taps_[count_++] = {(r * o_.dilation.h * width_ + s * o_.dilation.w) * channels_,
                           static_cast<int32_t>(r * o_.kernel.w + s)};
  }

  PoolWindows o_;
  int64_t height_, width_, channels_;
  Range rows_, columns_;
  size_t count_ = 0;
  std::array<Tap, 256> taps_;
};

}  // namespace bs::cpu

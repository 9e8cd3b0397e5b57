#pragma once
/** @file A sequence of feature vectors on the host. */
#include <cstdint>
#include <span>
#include <vector>

namespace bs::data {

/** @brief Rows of `width` numbers, one a point in time. */
struct Frames {
  int64_t width = 0;
  std::vector<float> values = {};  ///< row-major

  int64_t count() const { return width > 0 ? static_cast<int64_t>(values.size()) / width : 0; }
  std::span<float> row(int64_t i) {
    return std::span(values).subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
  }
  std::span<const float> row(int64_t i) const {
    return std::span(values).subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
  }
  /** @brief Whether the numbers are whole rows, of at most 2^24 numbers. */
  bool are_whole() const {
    return width >= 0 && width <= 1 << 24 && static_cast<int64_t>(values.size()) == count() * width;
  }
};

}  // namespace bs::data

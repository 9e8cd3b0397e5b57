#pragma once
/** @file Labelled images in memory. */
#include <cstdint>
#include <vector>

namespace bs::example {

/** @brief Grey images of one size, row by row, 0 for paper and 1 for ink, and their classes. */
struct Images {
  int64_t size = 0;  ///< pixels a side
  std::vector<float> pixels;
  std::vector<int64_t> classes;

  int64_t count() const { return static_cast<int64_t>(classes.size()); }
  const float* image(int64_t i) const { return pixels.data() + i * size * size; }
};

}  // namespace bs::example

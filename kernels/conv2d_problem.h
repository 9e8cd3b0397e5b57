#pragma once
/** @file The numbers of a convolution, without its tensors: what plans and kernels of both devices
 *  decide by. */
#include <bs/lib/tensor.h>

namespace bs {

/** @brief A number for rows and one for columns. */
struct Extent2 {
  int64_t h = 1, w = 1;
  bool operator==(const Extent2&) const = default;
};

/** @brief Rows and columns of zeros around an image. */
struct Padding2 {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  bool operator==(const Padding2&) const = default;
};

/** @brief Distances between neighbours of a four-dimensional tensor, in elements. */
struct Strides4 {
  int64_t n = 0, c = 0, h = 0, w = 0;

  Strides4() = default;
  explicit Strides4(const Tensor& t)
      : n(t.strides()[0]), c(t.strides()[1]), h(t.strides()[2]), w(t.strides()[3]) {}
  bool operator==(const Strides4&) const = default;
};

/** @brief A convolution x [n, c, h, w] * weight [k, c / groups, r, s] -> y [n, k, p, q]. In its
 *  gradients x stands for dx and so on. A plain struct, passed by value to device code. */
struct Conv2dProblem {
  int64_t n = 0, h = 0, w = 0, c = 0;
  int64_t k = 0, r = 0, s = 0;
  int64_t p = 0, q = 0;
  Extent2 stride, dilation;
  Padding2 padding;  ///< where it matters: only top and left, p and q knowing the others
  int64_t groups = 1;
  Strides4 x, weight, y;

  constexpr int64_t group_c() const { return c / groups; }  ///< input channels of a group
  constexpr int64_t group_k() const { return k / groups; }  ///< output channels of a group
  /** @brief Multiply-adds, those with padding included. */
  constexpr double products() const {
    return static_cast<double>(n) * static_cast<double>(p) * static_cast<double>(q) *
           static_cast<double>(k) * static_cast<double>(group_c()) * static_cast<double>(r) *
           static_cast<double>(s);
  }
  bool operator==(const Conv2dProblem&) const = default;
};

}  // namespace bs

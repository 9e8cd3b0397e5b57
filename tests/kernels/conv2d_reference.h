#pragma once
/** @file Convolutions as seven plain loops in double. */
#include <bs/kernels/conv2d.h>
#include <bs/tests/support/reference.h>

namespace bs::test {

/** @brief Calls f(y index, x index, weight index) for each product of a convolution with explicit
 *  padding; indices are of dense row-major arrays. */
template <class F>
void for_each_product(const Shape& x, const Shape& w, const Shape& y, const Conv2dOptions& o,
                      const F& f) {
  const int64_t group_k = w[0] / o.groups;
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t p = 0; p < y[2]; ++p)
        for (int64_t q = 0; q < y[3]; ++q)
          for (int64_t r = 0; r < w[2]; ++r)
            for (int64_t s = 0; s < w[3]; ++s) {
              const int64_t h = p * o.stride.h + r * o.dilation.h - o.padding.top;
              const int64_t v = q * o.stride.w + s * o.dilation.w - o.padding.left;
              if (h < 0 || v < 0 || h >= x[2] || v >= x[3]) continue;
              for (int64_t c = 0; c < w[1]; ++c) {
                const int64_t channel = k / group_k * w[1] + c;
                f(static_cast<size_t>(((n * y[1] + k) * y[2] + p) * y[3] + q),
                  static_cast<size_t>(((n * x[1] + channel) * x[2] + h) * x[3] + v),
                  static_cast<size_t>(((k * w[1] + c) * w[2] + r) * w[3] + s));
              }
            }
}

inline Shape conv2d_shape(const Shape& x, const Shape& w, const Conv2dOptions& o) {
  const auto& [top, bottom, left, right] = o.padding;
  return {x[0], w[0], (x[2] + top + bottom - o.dilation.h * (w[2] - 1) - 1) / o.stride.h + 1,
          (x[3] + left + right - o.dilation.w * (w[3] - 1) - 1) / o.stride.w + 1};
}

inline Reference conv2d_of(const Reference& x, const Reference& w, const Conv2dOptions& o) {
  Reference y(conv2d_shape(x.shape, w.shape, o));
  for_each_product(x.shape, w.shape, y.shape, o,
                   [&](size_t i, size_t j, size_t l) { y[i] += x[j] * w[l]; });
  return y;
}

inline Reference conv2d_dx_of(const Reference& dy, const Reference& w, const Shape& x,
                              const Conv2dOptions& o) {
  Reference dx(x);
  for_each_product(x, w.shape, dy.shape, o,
                   [&](size_t i, size_t j, size_t l) { dx[j] += dy[i] * w[l]; });
  return dx;
}

inline Reference conv2d_dw_of(const Reference& x, const Reference& dy, const Shape& w,
                              const Conv2dOptions& o) {
  Reference dw(w);
  for_each_product(x.shape, w, dy.shape, o,
                   [&](size_t i, size_t j, size_t l) { dw[l] += dy[i] * x[j]; });
  return dw;
}

}  // namespace bs::test

#pragma once
/** @file Convolutions as seven plain loops in double. */
#include <bs/kernels/conv2d.h>
#include <bs/tests/support/reference.h>

namespace bs::test {

/** @brief Steps from an element to the next of a loop over channels. */
struct ChannelStep {
  int64_t to, a, b;
};

/** @brief to += a b, for `n` channels. The loops spend their time here, so sanitizers, which would
 *  look at each element, are kept out. */
__attribute__((no_sanitize("address"), no_sanitize("undefined"))) inline void add_products(
    double* to, const double* a, const double* b, ChannelStep step, int64_t n) {
  for (int64_t c = 0; c < n; ++c) to[c * step.to] += a[c * step.a] * b[c * step.b];
}

/** @brief Calls f(y index, x index, weight index) for the products of a convolution with explicit
 *  padding, once for the channels of a group: they lie an image of x, and a filter's place, apart.
 *  Indices are of dense row-major arrays. */
template <class F>
void for_each_run(const Shape& x, const Shape& w, const Shape& y, const Conv2dOptions& o,
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
              const int64_t channel = k / group_k * w[1];
              f(((n * y[1] + k) * y[2] + p) * y[3] + q,
                ((n * x[1] + channel) * x[2] + h) * x[3] + v, (k * w[1] * w[2] + r) * w[3] + s);
            }
}

/** @brief The same, each product by itself. */
template <class F>
void for_each_product(const Shape& x, const Shape& w, const Shape& y, const Conv2dOptions& o,
                      const F& f) {
  for_each_run(x, w, y, o, [&](int64_t i, int64_t j, int64_t l) {
    for (int64_t c = 0; c < w[1]; ++c)
      f(static_cast<size_t>(i), static_cast<size_t>(j + c * x[2] * x[3]),
        static_cast<size_t>(l + c * w[2] * w[3]));
  });
}

inline Shape conv2d_shape(const Shape& x, const Shape& w, const Conv2dOptions& o) {
  const auto& [top, bottom, left, right] = o.padding;
  return {x[0], w[0], (x[2] + top + bottom - o.dilation.h * (w[2] - 1) - 1) / o.stride.h + 1,
          (x[3] + left + right - o.dilation.w * (w[3] - 1) - 1) / o.stride.w + 1};
}

inline Reference conv2d_of(const Reference& x, const Reference& w, const Conv2dOptions& o) {
  Reference y(conv2d_shape(x.shape, w.shape, o));
  const ChannelStep step{0, x.shape[2] * x.shape[3], w.shape[2] * w.shape[3]};
  for_each_run(x.shape, w.shape, y.shape, o, [&](int64_t i, int64_t j, int64_t l) {
    add_products(y.values.data() + i, x.values.data() + j, w.values.data() + l, step, w.shape[1]);
  });
  return y;
}

inline Reference conv2d_dx_of(const Reference& dy, const Reference& w, const Shape& x,
                              const Conv2dOptions& o) {
  Reference dx(x);
  const ChannelStep step{x[2] * x[3], 0, w.shape[2] * w.shape[3]};
  for_each_run(x, w.shape, dy.shape, o, [&](int64_t i, int64_t j, int64_t l) {
    add_products(dx.values.data() + j, dy.values.data() + i, w.values.data() + l, step, w.shape[1]);
  });
  return dx;
}

inline Reference conv2d_dw_of(const Reference& x, const Reference& dy, const Shape& w,
                              const Conv2dOptions& o) {
  Reference dw(w);
  const ChannelStep step{w[2] * w[3], 0, x.shape[2] * x.shape[3]};
  for_each_run(x.shape, w, dy.shape, o, [&](int64_t i, int64_t j, int64_t l) {
    add_products(dw.values.data() + l, dy.values.data() + i, x.values.data() + j, step, w[1]);
  });
  return dw;
}

}  // namespace bs::test

#pragma once
/** @file Running sums and products along an axis.
 *
 *  Any strides. Those of floats are kept in f64 on a CPU, in f32 (f64 for f64) on a GPU, and
 * rounded as they are written; integers and bool give i64 and wrap around. The order of additions
 * depends on the extents alone. */
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief y_i = x_0 + ... + x_i; with `reverse` y_i = x_i + ... + x_(n-1), the gradient of the
 *  former. */
Tensor cumsum(const Tensor& x, int axis, bool reverse = false);
/** @brief y_i = x_0 ... x_i. */
Tensor cumprod(const Tensor& x, int axis);
/** @brief dx of cumprod, right where x has zeros too. @param[in] y what cumprod returned */
Tensor cumprod_backward(const Tensor& x, const Tensor& y, const Tensor& dy, int axis);
/** @brief The product, in an order that depends on the extents alone; 1 over nothing. */
Tensor prod(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
template <AxisNumber I>
Tensor prod(const Tensor& x, I axis, bool keepdim = false) {
  return prod(x, one_axis(axis), keepdim);
}
/** @brief Where `values` [..., m] belong in the ascending rows of `sorted` [..., n], i64 of values'
 *  shape: how many of a row's elements lie below, and with `right` also at it.
 *  @throws Error unless both agree in dtype and all extents but the last. */
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);

/// Bytes of a row, in f32 or f64, whose products the threads of a block hold.
inline constexpr int64_t longest_product = 32768;

/// Along the middle axis of dense [outer, n, inner]; the others of dense rows [rows, n], those of
/// cumprod_backward of at most longest_product bytes in f32 or f64. Floats, or i64.
BS_BACKENDS(void cumsum(const Tensor& x, const Tensor& y, bool reverse, Stream stream);
            void cumprod(const Tensor& x, const Tensor& y, Stream stream);
            void cumprod_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                  Stream stream);
            void searchsorted(const Tensor& sorted, const Tensor& values, const Tensor& y,
                              bool right, Stream stream))

}  // namespace bs

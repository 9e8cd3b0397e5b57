#pragma once
/** @file Reductions over axes.
 *
 *  `axes` lists the axes to reduce, in any order, negative ones counting from the end; without it,
 *  all are reduced. With `keepdim` they stay, with extent 1. Any strides. Sums are kept in f32 (f64
 *  for f64, i64 for integers), in an order that does not depend on the number of threads: the same
 *  input gives the same bits. Everything is read once.
 *  @throws Error for an axis out of range or named twice. */
#include <bs/kernels/dispatch.h>

#include <concepts>
#include <optional>

namespace bs {

/** @brief Axes to reduce; nothing means all of them. */
using Axes = std::optional<Dims>;
/** @brief What may stand for one axis, as in sum(x, 0); `true` does not. */
template <class I>
concept AxisNumber = std::integral<I> && !std::same_as<I, bool>;
/** @brief That axis as a list. */
template <AxisNumber I>
Axes one_axis(I axis) {
  return Axes(Dims{static_cast<int64_t>(axis)});
}
/** @brief The axes of a tensor of `rank` that are meant, in ascending order.
 *  @throws Error naming `op` for an axis out of range or named twice. */
Dims reduced_axes(const char* op, const Axes& axes, int rank);

/** @brief Sum; 0 over nothing. Integers and bool give i64. */
Tensor sum(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Sum divided by the number of elements; NaN over nothing. Floating. */
Tensor mean(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief sum (x - mean)^2 / (n - correction), without cancellation. Floating. NaN or infinity when
 *  n <= correction. */
Tensor var(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
/** @brief The square root of var. */
Tensor stddev(const Tensor& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
/** @brief log(sum exp x) over `axes`, without overflow; -infinity over nothing but -infinity.
 *  Floating. */
Tensor logsumexp(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Largest element; NaN if there is one. @throws Error over nothing. */
Tensor amax(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Smallest element; NaN if there is one. @throws Error over nothing. */
Tensor amin(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Position (i64) of the first largest element; NaN counts as the largest. Over several axes
 *  the last counts fastest.
 *  @throws Error over nothing. */
Tensor argmax(const Tensor& x, const Axes& axes, bool keepdim = false);

/** @name One axis by its number
 *  @{ */
template <AxisNumber I>
Tensor sum(const Tensor& x, I axis, bool keepdim = false) {
  return sum(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Tensor mean(const Tensor& x, I axis, bool keepdim = false) {
  return mean(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Tensor var(const Tensor& x, I axis, bool keepdim = false, double correction = 1) {
  return var(x, one_axis(axis), keepdim, correction);
}
template <AxisNumber I>
Tensor stddev(const Tensor& x, I axis, bool keepdim = false, double correction = 1) {
  return stddev(x, one_axis(axis), keepdim, correction);
}
template <AxisNumber I>
Tensor amax(const Tensor& x, I axis, bool keepdim = false) {
  return amax(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Tensor amin(const Tensor& x, I axis, bool keepdim = false) {
  return amin(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Tensor argmax(const Tensor& x, I axis, bool keepdim = false) {
  return argmax(x, one_axis(axis), keepdim);
}
/** @brief Along the last axis. */
inline Tensor argmax(const Tensor& x) { return argmax(x, -1); }
/** @} */

/** @brief Sums x over the axes along which `shape` was broadcast to x's shape: the gradient of
 *  broadcasting. x itself when the shapes are equal.
 *  @throws Error when `shape` does not broadcast to x's. */
Tensor sum_to(const Tensor& x, const Shape& shape);

/** @name Vector-Jacobian products
 *  x is the input, y the result of the forward with the same `axes` and `keepdim`.
 *  @{ */
/** @brief dy repeated over the reduced axes: a view. */
Tensor sum_backward(const Shape& x_shape, const Tensor& dy, const Axes& axes, bool keepdim);
/** @brief dy / n repeated over the reduced axes: a view. */
Tensor mean_backward(const Shape& x_shape, const Tensor& dy, const Axes& axes, bool keepdim);
/** @brief dx = dy 2 (x - mean) / (n - correction). */
Tensor var_backward(const Tensor& x, const Tensor& dy, const Axes& axes, bool keepdim,
                    double correction);
/** @brief dx = dy (x - mean) / ((n - correction) y), and 0 where y is 0. */
Tensor stddev_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                       bool keepdim, double correction);
/** @brief Of amax and amin: dy divided evenly among the elements that equal y. */
Tensor extremum_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                         bool keepdim);
/** @} */

/** Backends reduce the middle axis of a contiguous x [outer, n, inner] to a contiguous y
 *  [outer, inner]. y has the dtype of the sum: f64 for f64, f32 for other floats, i64 for i64. That
 *  of sum, amax and amin may be of 16 bits in place of f32, and is rounded. `mean`, like y, gets
 * the means unless it is undefined. */
BS_BACKENDS(void sum(const Tensor& x, const Tensor& y, double scale, Stream stream);
            void squared_deviation(const Tensor& x, const Tensor& mean, const Tensor& y,
                                   double scale, Stream stream);
            void amax(const Tensor& x, const Tensor& y, Stream stream);
            void amin(const Tensor& x, const Tensor& y, Stream stream);
            void log_sum_exp(const Tensor& x, const Tensor& y, Stream stream);
            void argmax(const Tensor& x, const Tensor& y, Stream stream))

}  // namespace bs

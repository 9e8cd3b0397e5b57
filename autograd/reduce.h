#pragma once
/** @file Differentiable reductions; see kernels/reduce.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/reduce.h>

namespace bs {

Variable sum(const Variable& x, const Axes& axes = {}, bool keepdim = false);
Variable mean(const Variable& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Saves x. */
Variable var(const Variable& x, const Axes& axes = {}, bool keepdim = false, double correction = 1);
/** @brief Saves x and its result. Equal largest elements share the gradient evenly. */
Variable amax(const Variable& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Saves x and its result. Equal smallest elements share the gradient evenly. */
Variable amin(const Variable& x, const Axes& axes = {}, bool keepdim = false);
/** @brief The sum over the axes along which `shape` would be broadcast to x. */
Variable sum_to(const Variable& x, const Shape& shape);
/** @brief The gradient of sum(x, axes, keepdim): dy, along the axes of an x of `x_shape`. */
Variable sum_backward(const Shape& x_shape, const Variable& dy, const Axes& axes, bool keepdim);
/** @brief The square root of var. Saves x and its result; where that is 0, so is the gradient. */
Variable stddev(const Variable& x, const Axes& axes = {}, bool keepdim = false,
                double correction = 1);

/** @name One axis by its number
 *  @{ */
template <AxisNumber I>
Variable sum(const Variable& x, I axis, bool keepdim = false) {
  return sum(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Variable mean(const Variable& x, I axis, bool keepdim = false) {
  return mean(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Variable var(const Variable& x, I axis, bool keepdim = false, double correction = 1) {
  return var(x, one_axis(axis), keepdim, correction);
}
template <AxisNumber I>
Variable stddev(const Variable& x, I axis, bool keepdim = false, double correction = 1) {
  return stddev(x, one_axis(axis), keepdim, correction);
}
template <AxisNumber I>
Variable amax(const Variable& x, I axis, bool keepdim = false) {
  return amax(x, one_axis(axis), keepdim);
}
template <AxisNumber I>
Variable amin(const Variable& x, I axis, bool keepdim = false) {
  return amin(x, one_axis(axis), keepdim);
}
/** @} */

}  // namespace bs

#pragma once
/** @file Differentiable running sums and products; see kernels/scan.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/reduce.h>

namespace bs {

Variable cumsum(const Variable& x, int axis);
/** @brief Saves x and its result. */
Variable cumprod(const Variable& x, int axis);
/** @brief The product, axis by axis. Saves x and the running products of each. */
Variable prod(const Variable& x, const Axes& axes = {}, bool keepdim = false);
template <AxisNumber I>
Variable prod(const Variable& x, I axis, bool keepdim = false) {
  return prod(x, one_axis(axis), keepdim);
}

}  // namespace bs

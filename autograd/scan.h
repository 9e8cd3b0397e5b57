#pragma once
/** @file Differentiable running sums and products; see kernels/scan.h. */
#include <bs/autograd/variable.h>

namespace bs {

Variable cumsum(const Variable& x, int axis);
/** @brief Saves x and its result. */
Variable cumprod(const Variable& x, int axis);
/** @brief The product along one axis. Saves x and the running products. */
Variable prod(const Variable& x, int axis, bool keepdim = false);

}  // namespace bs

#pragma once
/** @file Differentiable copies between layouts, dtypes and devices; see kernels/copy.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief x itself when it is dense in row-major order, else a dense copy. */
Variable contiguous(const Variable& x);
/** @brief A dense copy. */
Variable clone(const Variable& x);
/** @brief x in another floating dtype; its gradient comes back in x's own. */
Variable cast(const Variable& x, DType dtype);
/** @brief x on another device; its gradient comes back to x's own. */
Variable to(const Variable& x, Device device);

}  // namespace bs

#pragma once
/** @file Differentiable choice of positions; see kernels/index_select.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief The positions `indices` [count] of `axis`. Saves the indices. */
Variable index_select(const Variable& x, int axis, const Tensor& indices);

}  // namespace bs

#pragma once
/** @file Differentiable products of matrices; see kernels/matmul.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief a [..., m, k] times b [..., k, n]. Saves both. */
Variable matmul(const Variable& a, const Variable& b);

}  // namespace bs

#pragma once
/** @file Differentiable norms; see kernels/vector_norm.h. They save x and the result. */
#include <bs/autograd/variable.h>
#include <bs/kernels/vector_norm.h>

namespace bs {

Variable vector_norm(const Variable& x, double p = 2, const Axes& axes = {}, bool keepdim = false);
Variable logsumexp(const Variable& x, const Axes& axes = {}, bool keepdim = false);

}  // namespace bs

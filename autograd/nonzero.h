#pragma once
/** @file Differentiable choice by a mask; see kernels/nonzero.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief The elements [count] whose mask is not zero. Saves their positions. */
Variable masked_select(const Variable& x, const Tensor& mask);
/** @brief x with `value` where the mask is not zero. Saves the mask. */
Variable masked_fill(const Variable& x, const Tensor& mask, Scalar value);
inline Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value) {
  return masked_fill(Variable(x), mask, value).data();
}

}  // namespace bs

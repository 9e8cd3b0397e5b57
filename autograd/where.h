#pragma once
/** @file Differentiable choice; see kernels/where.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief condition ? a : b. Saves the condition; the operand not chosen gets gradient 0. */
Variable where(const Tensor& condition, const Variable& a, const Variable& b);
Variable where(const Tensor& condition, const Variable& a, Scalar b);
Variable where(const Tensor& condition, Scalar a, const Variable& b);

}  // namespace bs

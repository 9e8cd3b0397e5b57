#pragma once
/** @file Differentiable rounding and remainders; see kernels/rounding.h. Steps have gradient 0. */
#include <bs/autograd/variable.h>
#include <bs/kernels/operand.h>

namespace bs {

Variable floor(const Variable& x);
Variable ceil(const Variable& x);
Variable round(const Variable& x);
Variable trunc(const Variable& x);
Variable sign(const Variable& x);
/** @brief Saves both operands. */
Variable remainder(const Variable& a, const Variable& b);
Variable remainder(const Variable& a, Scalar b);

}  // namespace bs

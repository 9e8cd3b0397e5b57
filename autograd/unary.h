#pragma once
/** @file Differentiable functions of one number; see kernels/unary.h. */
#include <bs/autograd/variable.h>

namespace bs {

Variable neg(const Variable& x);
Variable abs(const Variable& x);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
Variable rsqrt(const Variable& x);
Variable reciprocal(const Variable& x);
Variable clamp(const Variable& x, double low, double high);

inline Variable operator-(const Variable& x) { return neg(x); }

}  // namespace bs

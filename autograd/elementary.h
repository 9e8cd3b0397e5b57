#pragma once
/** @file Differentiable elementary functions; see kernels/elementary.h. */
#include <bs/autograd/variable.h>

namespace bs {

Variable sin(const Variable& x);
Variable cos(const Variable& x);
Variable tan(const Variable& x);
Variable erf(const Variable& x);
Variable log1p(const Variable& x);
Variable expm1(const Variable& x);

}  // namespace bs

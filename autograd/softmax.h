#pragma once
/** @file Differentiable softmax; see kernels/softmax.h for the formula. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief Softmax over the last axis of x [..., n]. Saves its result. */
Variable softmax(const Variable& x);

}  // namespace bs

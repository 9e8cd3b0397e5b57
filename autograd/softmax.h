#pragma once
/** @file Differentiable softmax; see kernels/softmax.h for the formulas. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief Softmax over `axis`. Saves its result. */
Variable softmax(const Variable& x, int axis = -1);
/** @brief The logarithm of softmax over `axis`. Saves its result. */
Variable log_softmax(const Variable& x, int axis = -1);

}  // namespace bs

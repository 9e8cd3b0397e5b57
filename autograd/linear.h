#pragma once
/** @file The differentiable fully connected layer; see kernels/linear.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief y = x W^T + bias, for x [..., in], weight [out, in], bias [out] or undefined. Saves x and
 *  the weight. */
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});

}  // namespace bs

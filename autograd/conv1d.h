#pragma once
/** @file The differentiable convolution of sequences; see kernels/conv1d.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/conv1d.h>

namespace bs {

/** @brief y = x * weight + bias of x [N, C, L] with a weight [K, C / groups, S]; bias may be
 *  undefined. Saves x and the weight. */
Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias = {},
                const Conv1dOptions& options = {});

}  // namespace bs

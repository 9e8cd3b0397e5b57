#pragma once
/** @file The differentiable feed-forward part of a transformer; see kernels/feed_forward.h. */
#include <bs/autograd/variable.h>

namespace bs {

/** @brief gelu(x weight1^T + bias1) weight2^T + bias2 with the tanh form of GELU. Saves x, the
 *  weights and the GELU's input and result. */
Variable feed_forward(const Variable& x, const Variable& weight1, const Variable& bias1,
                      const Variable& weight2, const Variable& bias2);

}  // namespace bs

#pragma once
/** @file Differentiable convolutions; see kernels/conv2d.h for shapes and formats. */
#include <bs/autograd/variable.h>
#include <bs/kernels/conv2d.h>

namespace bs {

/** @brief y = activation(x * weight + bias + residual); bias and residual may be undefined. Saves
 * x, the weight, and y or what the activation takes, where its gradient needs it. An activation
 *  whose gradient needs its argument (silu, gelu) is a pass of its own. */
Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias = {},
                const Conv2dOptions& options = {}, Activation activation = Activation::none,
                const Variable& residual = {});
/** @brief The transposed convolution of x [N, K, H, W] with a weight [K, C / groups, R, S]. */
Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias = {},
                          const Conv2dOptions& options = {}, Extent2 output_padding = {0, 0});

}  // namespace bs

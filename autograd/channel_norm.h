#pragma once
/** @file What the second derivatives of batch and group norm share. */
#include <bs/autograd/variable.h>

#include <span>

namespace bs {

/** @brief What a norm of channels has saved of its affine map and ReLU. */
struct AffineChannels {
  Tensor weight, bias;  ///< what stands for those that want no gradient, or undefined
  Tensor y;             ///< the result, where a residual hides its sign
  bool relu = false;
};

/** @brief h weight + bias + residual, in x's dtype and of its shape, and its ReLU where there was
 *  one. For gradients alone: of the residual only the place in the sum counts, not the values.
 *  @param[in] h normalised, of x's shape
 *  @param[in] inputs x, weight, bias and residual, each undefined where no gradient is wanted */
Variable affine_channels(const Variable& h, std::span<const Variable> inputs,
                         const AffineChannels& saved, DType dtype);

}  // namespace bs

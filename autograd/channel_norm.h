#pragma once
/** @file What the second derivatives of batch and group norm share. */
#include <bs/autograd/variable.h>

#include <span>

namespace bs {

/** @brief h weight + bias + residual, in x's dtype and of its shape; where `positive` is given, 0
 *  instead wherever that is not above 0. For gradients alone: what is not wanted is left out of the
 *  sum.
 *  @param[in] h normalised, of x's shape
 *  @param[in] inputs x, weight, bias and residual, each undefined where no gradient is wanted
 *  @param[in] weight what stands for an undefined one, or undefined */
Variable affine_channels(const Variable& h, std::span<const Variable> inputs, const Tensor& weight,
                         const Tensor& positive, DType dtype);

}  // namespace bs

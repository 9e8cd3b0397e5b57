#pragma once
/** @file The norm of all gradients together, and clipping by it, without waiting for the device. */
#include <bs/kernels/dispatch.h>

#include <span>

namespace bs {

/** @brief How gradients are scaled before use: by min(1, max_norm / (norm + 1e-6)). */
struct GradientClip {
  Tensor norm;          ///< scalar of f64 on the gradients' device, from grad_norm; or undefined
  double max_norm = 0;  ///< looked at only where `norm` is defined
};

/** @brief sqrt(sum of squares over all elements of all tensors), summed in double in a fixed order.
 *  @param[in] gradients floating, of one device, any shapes and strides; undefined ones count as 0
 *  @return a scalar of f64 on their device (on the CPU where there is none)
 *  @throws Error when devices differ. */
Tensor grad_norm(std::span<const Tensor> gradients);

/** @brief Multiplies every gradient in place by the factor of `clip`, all in one launch a dtype.
 *  @param[in,out] gradients contiguous; undefined ones are passed over. The optimisers take a
 *  GradientClip themselves, which saves this pass. */
void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip);

/// Tensors of any dtypes, contiguous, none of them undefined or empty.
BS_BACKENDS(void grad_norm(std::span<const Tensor> gradients, const Tensor& norm, Stream stream);
            void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip,
                                Stream stream))

}  // namespace bs

#pragma once
/** @file The norm of all gradients together, and clipping by it, without waiting for the device. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/host_device.h>

#include <limits>
#include <span>

namespace bs {

/** @brief How gradients are scaled before use: by clip_factor(norm / scale, max_norm) / scale. */
struct GradientClip {
  Tensor norm;          ///< scalar of f64 on the gradients' device, from grad_norm; or undefined
  double max_norm = 0;  ///< looked at only where `norm` is defined
  /** A step with a norm that is NaN or infinite changes nothing, instead of all to NaN. The device
   *  decides; the host need not know. */
  bool skip_nonfinite = false;
  double scale = 1;  ///< what the loss was multiplied with; `norm` is that of the gradients at hand
};

/** @brief min(1, max_norm / (norm + 1e-6)), as in PyTorch; NaN for a norm that is NaN. */
BS_HOST_DEVICE inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1.0 : factor;
}

/** @brief A GradientClip as kernels read it: `norm` points to device memory, or is null. */
struct ClipView {
  const double* norm;
  double max_norm;
  bool skip_nonfinite;
  double inverse;  ///< 1 / scale

  /** @brief Whether this step is to change nothing. */
  BS_HOST_DEVICE bool skips() const { return norm && skip_nonfinite && !(*norm <= largest); }
  BS_HOST_DEVICE double factor() const {
    return norm ? clip_factor(*norm * inverse, max_norm) * inverse : inverse;
  }

 private:
  static constexpr double largest = std::numeric_limits<double>::max();
};

/** @brief sqrt(sum of squares over all elements of all tensors), summed in double in a fixed order.
 *  @param[in] gradients floating, of one device, any shapes and strides; undefined ones count as 0
 *  @return a scalar of f64 on their device (on the CPU where there is none)
 *  @throws Error when devices differ. */
Tensor grad_norm(std::span<const Tensor> gradients);

/** @brief Multiplies every gradient in place by the factor of `clip`, in one launch a dtype.
 *  @param[in,out] gradients contiguous; undefined ones are passed over. The optimisers take a
 *  GradientClip themselves, which saves this pass. */
void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip);

/** @brief Throws an Error naming `op` unless `clip` is undefined or fits gradients on `device`. */
void check_clip(const char* op, const GradientClip& clip, Device device);

/// Tensors of any floating dtypes, contiguous, none of them undefined or empty.
BS_BACKENDS(void grad_norm(std::span<const Tensor> gradients, const Tensor& norm, Stream stream);
            void clip_gradients(std::span<const Tensor> gradients, const GradientClip& clip,
                                Stream stream))

}  // namespace bs

#pragma once
/** @file Moving averages of many tensors, one launch a dtype. */
#include <bs/kernels/dispatch.h>

#include <span>

namespace bs {

/** @brief A tensor and its average, of one shape, both contiguous. */
struct EmaParameter {
  Tensor value;    ///< floating
  Tensor average;  ///< f32 (f64 for f64), updated in place
};

/** @brief average += (1 - decay) (value - average), computed in the average's dtype.
 *  @param[in] mix [1] of f64 on the parameters' device: taken for 1 - decay, so that a graph can go
 *  on from step to step; or undefined
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, or decay is not in [0, 1]. */
void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& mix = {});

/// Parameters of any floating dtypes, none empty.
BS_BACKENDS(void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& mix,
                     Stream stream))

}  // namespace bs

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
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, or decay is not in [0, 1]. */
void ema(std::span<const EmaParameter> parameters, double decay);

/// Parameters of any floating dtypes, none empty.
BS_BACKENDS(void ema(std::span<const EmaParameter> parameters, double decay, Stream stream))

}  // namespace bs

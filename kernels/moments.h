#pragma once
/** @file What the optimisers of Adam's kin share: two moments a parameter, and their checks. */
#include <bs/kernels/grad_norm.h>

#include <span>
#include <vector>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct MomentParameter {
  Tensor value;          ///< floating
  Tensor gradient;       ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor first_moment;   ///< f32 (f64 for f64), zeros before the first step
  Tensor second_moment;  ///< alike
  Tensor master;         ///< f32 copy of a 16-bit value, which the step is done on; else undefined
};

/** @brief The parameters that have a gradient and elements, their gradients contiguous.
 *  @throws Error naming `op` when shapes, dtypes, devices or layouts do not fit, step < 1, or a
 *  beta is outside of [0, 1). */
std::vector<MomentParameter> checked_moments(const char* op,
                                             std::span<const MomentParameter> parameters,
                                             int64_t step, double beta1, double beta2,
                                             const GradientClip& clip);

}  // namespace bs

#pragma once
/** @file Lion (Chen et al., arXiv:2302.06675), one launch for all parameters of a dtype. */
#include <bs/kernels/parameter.h>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct LionParameter {
  Tensor value;     ///< floating
  Tensor gradient;  ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor momentum;  ///< f32 (f64 for f64), zeros before the first step
  Tensor master;    ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<LionParameter, 1> states = {&LionParameter::momentum};
};

struct LionOptions {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
};
/** @brief What the tensors of state are called. */
inline std::array<const char*, 1> state_names(const LionOptions&) { return {"momentum"}; }

/** @brief One step, with g the gradient after clipping:
 *  w *= 1 - lr * decay; w -= lr * sign(m + (1 - beta1) (g - m)); m += (1 - beta2) (g - m).
 *  The sign of zero is zero, that of NaN is NaN.
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, a beta is outside of [0, 1),
 * or a rate or decay is negative. */
void lion(std::span<const LionParameter> parameters, const LionOptions& options,
          const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_lion(std::span<const LionParameter> parameters, const LionOptions& options,
                           const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief What depends on the rate. As a tensor of f64 on the parameters' device these are the last
 *  argument above, and a graph can go on from step to step. */
std::array<double, 2> lion_numbers(int64_t step, const LionOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void lion(std::span<const LionParameter> parameters, const LionOptions& options,
                      const GradientClip& clip, const Tensor& numbers, Stream stream))

}  // namespace bs

#pragma once
/** @file Adam (Kingma, Ba, 2015) with decay added to the gradient, one launch for all parameters of
 *  a dtype. */
#include <bs/kernels/moments.h>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct AdamParameter {
  Tensor value;          ///< floating
  Tensor gradient;       ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor first_moment;   ///< f32 (f64 for f64), zeros before the first step
  Tensor second_moment;  ///< alike
  Tensor max_second_moment;  ///< alike, for amsgrad; else undefined
  Tensor master;  ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<AdamParameter, 3> states = {&AdamParameter::first_moment,
                                                            &AdamParameter::second_moment,
                                                            &AdamParameter::max_second_moment};
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;  ///< divide by the largest second moment so far (Reddi et al., 2018)
};
/** @brief What the tensors of state are called; null for what the options do not need. */
inline std::array<const char*, 3> state_names(const AdamOptions& options) {
  return {moment_names[0], moment_names[1], options.amsgrad ? "max_second_moment" : nullptr};
}

/** @brief One step, with g the gradient after clipping, t the number of the step, from 1:
 *  g += decay * w; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2; with amsgrad, x is the
 *  largest v so far, else v; w -= lr * (m / (1 - beta1^t)) / (sqrt(x / (1 - beta2^t)) + eps).
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, step < 1 or a beta is outside
 *  of [0, 1). Also when a rate, eps or decay is negative. */
void adam(std::span<const AdamParameter> parameters, int64_t step, const AdamOptions& options,
          const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_adam(std::span<const AdamParameter> parameters, int64_t step,
                           const AdamOptions& options, const GradientClip& clip = {},
                           const Tensor& numbers = {});
/** @brief What depends on the step and its rate. As a tensor of f64 on the parameters' device these
 *  are the last argument above, and a graph can go on from step to step. */
std::array<double, 2> adam_numbers(int64_t step, const AdamOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void adam(std::span<const AdamParameter> parameters, int64_t step,
                      const AdamOptions& options, const GradientClip& clip, const Tensor& numbers,
                      Stream stream))

}  // namespace bs

#pragma once
/** @file RMSprop (Hinton, 2012; centred: Graves, 2013), one launch for all parameters of a dtype.
 */
#include <bs/kernels/parameter.h>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct RMSpropParameter {
  Tensor value;           ///< floating
  Tensor gradient;        ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor square_average;  ///< f32 (f64 for f64), zeros before the first step
  Tensor momentum;        ///< alike, where options.momentum is not zero
  Tensor gradient_average;  ///< alike, where options.centered
  Tensor master;  ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<RMSpropParameter, 3> states = {&RMSpropParameter::square_average,
                                                               &RMSpropParameter::momentum,
                                                               &RMSpropParameter::gradient_average};
};

struct RMSpropOptions {
  double learning_rate = 1e-2;
  double alpha = 0.99;  ///< share of the averages that a step keeps
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  ///< divide by the standard deviation of the gradient
};
/** @brief What the tensors of state are called; null for what the options do not need. */
inline std::array<const char*, 3> state_names(const RMSpropOptions& options) {
  return {"square_average", options.momentum != 0 ? "momentum" : nullptr,
          options.centered ? "gradient_average" : nullptr};
}

/** @brief One step, with g the gradient after clipping:
 *  g += decay * w; s = alpha s + (1 - alpha) g^2; a += (1 - alpha) (g - a) where centred, else 0;
 *  b = momentum * b + g / (sqrt(s - a^2) + eps); w -= lr * b.
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  @param[in] rate [1] of f64 on the parameters' device: taken for options.learning_rate, so that
 *  a graph can go on from step to step; or undefined
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, alpha is outside of [0, 1), or
 *  a rate, eps, decay or momentum is negative. */
void rmsprop(std::span<const RMSpropParameter> parameters, const RMSpropOptions& options,
             const GradientClip& clip = {}, const Tensor& rate = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_rmsprop(std::span<const RMSpropParameter> parameters,
                              const RMSpropOptions& options, const GradientClip& clip = {},
                              const Tensor& rate = {});
/** @brief What depends on the step and its rate: the rate. */
std::array<double, 1> rmsprop_numbers(int64_t step, const RMSpropOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void rmsprop(std::span<const RMSpropParameter> parameters,
                         const RMSpropOptions& options, const GradientClip& clip,
                         const Tensor& rate, Stream stream))

}  // namespace bs

#pragma once
/** @file Gradient descent with momentum, one launch for all parameters of a dtype. */
#include <bs/kernels/parameter.h>

namespace bs {

/** @brief One parameter and its state, all of one shape, contiguous, updated in place. */
struct SgdParameter {
  Tensor value;     ///< floating
  Tensor gradient;  ///< of value's dtype, any strides; undefined: the parameter is left alone
  Tensor momentum;  ///< f32 (f64 for f64), zeros before the first step; undefined without momentum
  Tensor master;    ///< f32 copy of a 16-bit value, which the step is done on; else undefined

  static constexpr StateMembers<SgdParameter, 1> states = {&SgdParameter::momentum};
};

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
/** @brief What the tensors of state are called; null for what the options do not need. */
inline std::array<const char*, 1> state_names(const SgdOptions& options) {
  return {options.momentum != 0 ? "momentum" : nullptr};
}

/** @brief One step, with g the gradient after clipping, as in PyTorch without dampening:
 *  g += decay * w; b = momentum * b + g; w -= lr * (nesterov ? g + momentum * b : b).
 *  @param[in] rate [1] of f64 on the parameters' device: taken for options.learning_rate, so that
 *  a graph can go on from step to step; or undefined
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, or when options.momentum is
 *  not zero and a parameter has no momentum tensor. */
void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
         const GradientClip& clip = {}, const Tensor& rate = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
                          const GradientClip& clip = {}, const Tensor& rate = {});
/** @brief What depends on the step and its rate: the rate. */
std::array<double, 1> sgd_numbers(int64_t step, const SgdOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient; those without a
/// momentum tensor are stepped without momentum.
BS_BACKENDS(void sgd(std::span<const SgdParameter> parameters, const SgdOptions& options,
                     const GradientClip& clip, const Tensor& rate, Stream stream))

}  // namespace bs

#pragma once
/** @file AdamW (Loshchilov, Hutter, 2019), one launch for all parameters of a dtype. */
#include <bs/kernels/moments.h>

namespace bs {

using AdamWParameter = MomentParameter;

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};
/** @brief What the tensors of state are called. */
inline std::array<const char*, 2> state_names(const AdamWOptions&) { return moment_names; }

/** @brief One step, with g the gradient after clipping, t the number of the step, from 1:
 *  w *= 1 - lr * decay; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
 *  w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  Scalars come from the host, the norm of `clip` from the device: nothing waits.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, step < 1, or a rate, eps
 *  or decay is negative. */
void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_adamw(std::span<const AdamWParameter> parameters, int64_t step,
                            const AdamWOptions& options, const GradientClip& clip = {},
                            const Tensor& numbers = {});
/** @brief What depends on the step and its rate. As a tensor of f64 on the parameters' device these
 *  are the last argument above, and a graph can go on from step to step. */
std::array<double, 3> adamw_numbers(int64_t step, const AdamWOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void adamw(std::span<const AdamWParameter> parameters, int64_t step,
                       const AdamWOptions& options, const GradientClip& clip, const Tensor& numbers,
                       Stream stream))

}  // namespace bs

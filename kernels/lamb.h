#pragma once
/** @file LAMB (You et al., Large batch optimization for deep learning, 2020): Adam's direction,
 * with a length for each tensor in proportion to the tensor's own. */
#include <bs/kernels/moments.h>

namespace bs {

using LambParameter = MomentParameter;

struct LambOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0.01;
  /** Whether tensors that do not decay get a length of their own too; without it their step is
   *  Adam's, as in NVIDIA's FusedLAMB. */
  bool always_adapt = false;
};
/** @brief What the tensors of state are called. */
inline std::array<const char*, 2> state_names(const LambOptions&) { return moment_names; }

/** @brief One step, with g the gradient after clipping, t the number of the step, from 1:
 *  m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
 *  u = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + decay w;
 *  w -= lr * r * u, where r = |w| / |u| over the tensor, and 1 where either norm is 0, or where
 *  nothing decays and `always_adapt` is off. Norms are summed in double in a fixed order.
 *  Three launches a dtype: w, m and v are read twice, u is never stored.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, step < 1, or a rate, eps
 *  or decay is negative. */
void lamb(std::span<const LambParameter> parameters, int64_t step, const LambOptions& options,
          const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same step, checked and with its memory, to be done later. */
PreparedStep prepared_lamb(std::span<const LambParameter> parameters, int64_t step,
                           const LambOptions& options, const GradientClip& clip = {},
                           const Tensor& numbers = {});
/** @brief What depends on the step and its rate. As a tensor of f64 on the parameters' device these
 *  are the last argument above, and a graph can go on from step to step. */
std::array<double, 3> lamb_numbers(int64_t step, const LambOptions& options);

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void lamb(std::span<const LambParameter> parameters, int64_t step,
                      const LambOptions& options, const GradientClip& clip, const Tensor& numbers,
                      Stream stream))

}  // namespace bs

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

/** @brief One step, with g the gradient after clipping, t the number of the step, from 1:
 *  w *= 1 - lr * decay; m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2;
 *  w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).
 *  16-bit values are the rounded master; without a master they are stepped in f32 and rounded.
 *  Scalars come from the host, the norm of `clip` from the device: nothing waits.
 *  @throws Error when shapes, dtypes, devices or layouts do not fit, or step < 1. */
void adamw(std::span<const AdamWParameter> parameters, int64_t step, const AdamWOptions& options,
           const GradientClip& clip = {});

/// Parameters of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void adamw(std::span<const AdamWParameter> parameters, int64_t step,
                       const AdamWOptions& options, const GradientClip& clip, Stream stream))

}  // namespace bs

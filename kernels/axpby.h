#pragma once
/** @file Many tensors scaled and added to, one launch a dtype: what the optimisers that are made of
 *  products and norms end with. */
#include <bs/kernels/parameter.h>

namespace bs {

/** @brief A tensor and what is added to it, of one shape and dtype. */
struct AxpbyParameter {
  Tensor value;     ///< floating, contiguous, updated in place
  Tensor gradient;  ///< any strides; undefined: the value is left alone
  Tensor master;    ///< f32 copy of a 16-bit value, which the sum is done on; else undefined

  static constexpr StateMembers<AxpbyParameter, 0> states = {};
};

/** @brief y = keep * y + mix * x, with x the gradient after clipping.
 *  @param[in] numbers [2] of f64 on the tensors' device. They are taken for `keep` and `mix`, so
 * that a graph can go on from step to step; or undefined
 *  @throws Error when shapes, dtypes, devices or layouts do not fit. */
void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
           const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief The same sums, checked and with their memory, to be done later. */
PreparedStep prepared_axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
                            const GradientClip& clip = {}, const Tensor& numbers = {});
/** @brief What of `clip` remains where gradients are clipped already: skipped steps. */
GradientClip only_skips(const GradientClip& clip);

/// Tensors of any floating dtypes, none empty, all with a contiguous gradient.
BS_BACKENDS(void axpby(std::span<const AxpbyParameter> parameters, double keep, double mix,
                       const GradientClip& clip, const Tensor& numbers, Stream stream))

}  // namespace bs

#pragma once
/** @file Group norm (Wu, He, 2018) and instance norm (Ulyanov et al., 2016) of x [N, C, ...].
 * Formats, dtypes and the order of sums are those of batch_norm.h. */
#include <bs/kernels/channel_norm.h>

namespace bs {

/** @brief A normalised tensor and what its backward needs. */
struct GroupNormResult {
  Tensor y;
  Tensor mean, rstd;  ///< [N, groups], f32 (f64 for f64)
};
struct GroupNormGradients {
  Tensor dx, dweight = {}, dbias = {};
  Tensor dresidual = {};  ///< undefined where it is not wanted; dy itself where there is no ReLU
};

struct GroupNormOptions {
  int64_t groups = 1;  ///< of C / groups channels each; C groups make it instance norm
  double eps = 1e-5;
  bool relu = false;  ///< y = max(y, 0) in the same pass
};

/** @brief y = (x - mean) rstd weight + bias + residual with the statistics of each image's groups
 * of channels, in one pass behind the statistics.
 *  @param[in] weight, bias [C], or undefined for ones and zeros
 *  @param[in] residual of x's shape and dtype, or undefined
 *  @throws Error unless the groups divide the channels. */
GroupNormResult group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const GroupNormOptions& options, const Tensor& residual = {});
/** @brief With g = dz weight and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)) over a
 *  group, dweight = sum dz h, dbias = sum dz over all images; dz = dy where y > 0 for a ReLU.
 *  @param[in] of the forward's; y may be undefined unless a residual was added before a ReLU
 *  @param[in] wants_residual whether to give dresidual = dz */
GroupNormGradients group_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                       const GroupNormResult& of, const Tensor& dy,
                                       const GroupNormOptions& options,
                                       bool wants_residual = false);

/// Leaves the statistics of each set in `to.mean` and `to.rstd`, which `norm` names too, and gives
/// y as channel_norm does. Its backward is channel_norm_sums, then channel_norm_backward.
BS_BACKENDS(void group_norm(const ChannelSlots& slots, const ChannelStatistics& to,
                            const ChannelNorm& norm, const Tensor& y, Stream stream);
            void group_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                                     const ChannelGradient& gradient, const Tensor& channel_sums,
                                     const Tensor& dx, const Tensor& dresidual, Stream stream))

}  // namespace bs

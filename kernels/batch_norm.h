#pragma once
/** @file Batch norm (Ioffe, Szegedy, 2015) of x [N, C] or [N, C, ...], over all axes but the
 * second.
 *
 *  y = (x - mean) rstd weight + bias, then + residual and max(., 0) where they are asked for, in
 * one pass. x is floating, any strides; a dense one is read where it lies, row-major or
 * channels-last, and results have its format. Statistics are f32, f64 for f64. Weight and bias are
 * of x's dtype or of the statistics'. Sums have a fixed order: the same bits each time. */
#include <bs/kernels/channel_norm.h>

namespace bs {

struct BatchNormOptions {
  double eps = 1e-5;
  bool relu = false;  ///< y = max(z, 0); NaN stays NaN
};

/** @brief Averages over the batches seen, changed in place; those undefined are left out. */
struct RunningStatistics {
  Tensor mean, var;       ///< [C], of the statistics' dtype or of x's; var is unbiased
  Tensor batches = {};    ///< i64 [], their number
  double momentum = 0.1;  ///< weight of a new batch; negative: 1 / batches, a plain average
};

/** @brief Sums over a part of a batch that others can be added to: see merge_moments. */
struct ChannelMoments {
  Tensor mean;        ///< [C]
  Tensor squares;     ///< [C], sum (x - mean)^2
  int64_t count = 0;  ///< elements a channel
};

/** @brief A normalised tensor and what its backward needs. */
struct BatchNormResult {
  Tensor y, mean, rstd;
};
struct BatchNormGradients {
  Tensor dx, dweight = {}, dbias = {};
  Tensor dresidual =
      {};  ///< undefined where no residual was added; dy itself where there is no ReLU
};

/** @brief Normalises by the statistics of x itself, as in training.
 *  @param[in] weight, bias [C], or undefined for ones and zeros
 *  @param[in] residual of x's shape and dtype, or undefined
 *  @throws Error for rank below 2, one element a channel, or shapes, dtypes, devices that do not
 *  fit. */
BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const RunningStatistics& running, const BatchNormOptions& options = {},
                           const Tensor& residual = {});
/** @brief Normalises by `mean` and `var` [C] given, as in use; `rstd` of the result is theirs. */
BatchNormResult batch_norm_by(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const Tensor& mean, const Tensor& var,
                              const BatchNormOptions& options = {}, const Tensor& residual = {});

/** @brief What one backward of batch norm gets. */
struct BatchNormSaved {
  Tensor x, weight, bias;
  Tensor mean, rstd;
  Tensor y = {};  ///< the result, where a residual was added before a ReLU; else undefined
  bool relu = false;
  bool constant = false;  ///< mean and rstd do not depend on x: batch_norm_by
};
/** @brief With dz = dy where y > 0, h = (x - mean) rstd and sums over a channel of m elements:
 *  dx = rstd weight (dz - sum(dz) / m - h sum(dz h) / m), dweight = sum(dz h), dbias = sum(dz); for
 *  constant statistics dx = rstd weight dz. dweight and dbias are of weight's and bias' dtype, and
 *  undefined where they are.
 *  @param[in] wants_residual whether to give dresidual = dz */
BatchNormGradients batch_norm_backward(const BatchNormSaved& saved, const Tensor& dy,
                                       bool wants_residual = false);

/** @name Batches over several devices
 *  Each makes the moments of its part; merged, they give the statistics of the whole. In backward
 *  the sums are added over devices before they go to batch_norm_backward_x.
 *  @{ */
ChannelMoments channel_moments(const Tensor& x);
/** @brief Moments of both parts together (Chan, Golub, LeVeque, 1979). */
ChannelMoments merge_moments(const ChannelMoments& a, const ChannelMoments& b);
/** @brief Sums of dz and of dz h, [2, C], of the statistics' dtype. */
Tensor batch_norm_backward_sums(const BatchNormSaved& saved, const Tensor& dy);
/** @brief dx, and dresidual where wanted, of a whole of `count` elements a channel. */
BatchNormGradients batch_norm_backward_x(const BatchNormSaved& saved, const Tensor& dy,
                                         const Tensor& sums, int64_t count,
                                         bool wants_residual = false);
/** @} */

}  // namespace bs

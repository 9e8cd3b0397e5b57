#pragma once
/** @file What batch, group and instance norm have in common: sums over parts of an image, and one
 *  pass that scales and shifts it by them. Users call batch_norm.h and group_norm.h.
 *
 *  x is [outer, n, inner]. An image's planes are [N C, H W, 1]. Its channels-last rows are
 *  [1, N H W, C] for batch norm and [N, H W, C] for group norm. So numbers that are summed together
 *  stand at one `slot` = o inner + i, which belongs to channel slot % channels. Statistics are of
 *  sets of slots: all of one channel, or neighbours. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief The cut of a tensor into slots, and of slots into sets. */
struct ChannelSlots {
  int64_t outer = 0, n = 0, inner = 0;
  int64_t channels = 0;
  int64_t neighbours = 0;  ///< slots of a set that lie side by side; 0: sets are channels

  int64_t slots() const { return outer * inner; }
  int64_t sets() const { return neighbours > 0 ? slots() / neighbours : channels; }
  int64_t slots_of_set() const { return slots() / sets(); }
  /** @brief Elements that one statistic is of. */
  int64_t count() const { return slots_of_set() * n; }
};

/** @brief Statistics of each set, f32 (f64 for f64). What is undefined is left out. */
struct ChannelStatistics {
  Tensor mean = {};     ///< [sets]
  Tensor squares = {};  ///< [sets], sum (x - mean)^2
  Tensor rstd = {};     ///< [sets], 1 / sqrt(squares / count + eps)
  double eps = 0;
  /** Averages over batches, [channels], of the same dtype, and their number, i64 []: updated. */
  Tensor running_mean = {}, running_var = {}, batches = {};
  double momentum = 0;  ///< weight of this batch; negative: 1 / batches, this one included
};

/** @brief What a normalisation reads. */
struct ChannelNorm {
  Tensor x;
  Tensor residual = {};  ///< dense as x, or undefined
  Tensor mean, rstd;     ///< [sets], f32 (f64 for f64)
  Tensor weight, bias;   ///< [channels], of that dtype or of x's, or undefined
  bool relu = false;
};

/** @brief What its backward reads besides. */
struct ChannelGradient {
  Tensor dy;
  Tensor y;             ///< of a ReLU behind a residual, whose sign x alone does not tell
  Tensor sums;          ///< [2, sets]: sum weight dz, sum weight dz h; undefined: constants
  bool weighs = false;  ///< whether sums, of sets that are channels, lack the weight
  double count = 1;     ///< elements that a statistic is of
};

/// Everything is dense in one format, and not empty. With z = (x - mean) rstd weight + bias +
/// residual, y = z or max(z, 0), dz the gradient of z and h = (x - mean) rstd: channel_sums gets
/// sum dz and sum dz h of each channel, [2, channels], of the dtypes that weights have, and
/// gradient.sums what it says. channel_norm_by gets mean and var [channels], likewise, and leaves
/// norm.mean and norm.rstd too; there may be no elements.
BS_BACKENDS(void channel_moments(const ChannelSlots& slots, const Tensor& x,
                                 const ChannelStatistics& to, Stream stream);
            void channel_norm(const ChannelSlots& slots, const ChannelNorm& norm, const Tensor& y,
                              Stream stream);
            void channel_norm_by(const ChannelSlots& slots, const Tensor& mean, const Tensor& var,
                                 double eps, const ChannelNorm& norm, const Tensor& y,
                                 Stream stream);
            void channel_norm_sums(const ChannelSlots& slots, const ChannelNorm& norm,
                                   const ChannelGradient& gradient, const Tensor& channel_sums,
                                   Stream stream);
            void channel_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                                       const ChannelGradient& gradient, const Tensor& dx,
                                       const Tensor& dresidual, Stream stream))

}  // namespace bs

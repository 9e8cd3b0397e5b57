#include <bs/kernels/group_norm.h>

namespace bs::cpu {

void group_norm(const ChannelSlots& slots, const ChannelStatistics& to, const ChannelNorm& norm,
                const Tensor& y, Stream stream) {
  channel_moments(slots, norm.x, to, stream);
  channel_norm(slots, norm, y, stream);
}

void group_norm_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                         const ChannelGradient& gradient, const Tensor& channel_sums,
                         const Tensor& dx, const Tensor& dresidual, Stream stream) {
  channel_norm_sums(slots, norm, gradient, channel_sums, stream);
  channel_norm_backward(slots, norm, gradient, dx, dresidual, stream);
}

}  // namespace bs::cpu

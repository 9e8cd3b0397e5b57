#include <bs/kernels/group_norm.h>

namespace bs::cpu {

void group_norm(const ChannelSlots& slots, const ChannelStatistics& to, const ChannelNorm& norm,
                const Tensor& y, Stream stream) {
  channel_moments(slots, norm.x, to, stream);
  channel_norm(slots, norm, y, stream);
}

}  // namespace bs::cpu

#pragma once
// Group norm of channels-last images that are read once: a block holds some groups of an image.
// Each says whether images are such, and does nothing where they are not.
#include <bs/kernels/group_norm.h>

namespace bs::cuda {

bool group_norm_rows(const ChannelSlots& slots, const ChannelStatistics& to,
                     const ChannelNorm& norm, const Tensor& y, Stream stream);
bool group_norm_rows_backward(const ChannelSlots& slots, const ChannelNorm& norm,
                              const ChannelGradient& gradient, const Tensor& channel_sums,
                              const Tensor& dx, const Tensor& dresidual, Stream stream);

}  // namespace bs::cuda

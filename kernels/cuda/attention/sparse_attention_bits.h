#pragma once
/** @file Masks of elements for the kernels on wgmma: a bit for each pair of a query and a key. */
#include <bs/kernels/sparse_attention.h>
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

namespace bs::cuda {

/** @brief A mask in bits, and what holds them. */
struct AttentionMask {
  device::AttentionBits bits = {};
  Tensor memory = {};
};

/** @brief The one mask of the options, of a packed one as it is. A boolean one is packed: its own
 *  memory once read, and an eighth of it written. Without any, there are no bits.
 *  @param[in] block,rows,cols of the layout: elements of a block's side, and blocks */
AttentionMask attention_mask(const SparseAttentionOptions& options, int heads, int block, int rows,
                             int cols, Stream stream);

}  // namespace bs::cuda

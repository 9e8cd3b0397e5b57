#pragma once
/** @file The text of the kernels of fused attention: one for a pass, a dtype and a padded head_dim,
 *  and for 16-bit types one more for tiles that lie within blocks. */
#include <bs/kernels/cuda/attention/sparse_attention_config.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/dtype.h>

#include <compare>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel is emitted from. */
struct AttentionKernel {
  AttentionPass pass = AttentionPass::forward;
  DType dtype = f16;
  int dim = 0;         ///< sparse_attention_dim of it
  bool whole = false;  ///< sparse_attention_whole
  bool asked = false;  ///< does nothing unless the word that a second parameter points at says so
  auto operator<=>(const AttentionKernel&) const = default;
};

SparseAttentionTile tile_of(const AttentionKernel& kernel);
jit::Source attention_source(const AttentionKernel& kernel);
/** @brief Two numbers for each query, which the other passes of backward need. */
jit::Source attention_numbers_source(DType dtype);
/** @brief All that attention_source can ever be asked for. */
std::vector<AttentionKernel> all_attention_kernels();

}  // namespace bs::cuda

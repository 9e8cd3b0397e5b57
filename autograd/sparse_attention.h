#pragma once
/** @file Differentiable attention over the blocks of a Layout; see kernels/sparse_attention.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/sparse_attention.h>

namespace bs {

/** @brief Options that are learnt: each takes the place of the option of its name. */
struct SparseAttentionVariables {
  Variable bias = {};           ///< [batch or 1, heads or 1, queries, keys]
  Variable relative_bias = {};  ///< [heads or 1, 2 n + 1]
  Variable sinks = {};          ///< [heads]
};

/** @brief softmax(scale q k^T, within the layout) v, for q [batch, heads, queries, head_dim], k and
 * v [batch, kv_heads, keys, head_dim]. Equal to sdd, block_sparse_softmax and dsd, without their
 *  memory: saves its inputs, its result and one number a row.
 *  @throws Error for one of `learnt` that the options hold too. */
Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LayoutPtr& layout, const SparseAttentionOptions& options = {},
                          const SparseAttentionVariables& learnt = {});

/** @brief Self-attention of qkv [batch, sequence, 3 * heads * head_dim], the output of one
 *  projection, giving [batch, sequence, heads * head_dim]. Copies nothing, forward or backward. */
Variable sparse_attention_qkv(const Variable& qkv, int heads, const LayoutPtr& layout,
                              const SparseAttentionOptions& options = {});

}  // namespace bs

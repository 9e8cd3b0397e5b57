#pragma once
/** @file Differentiable attention over the blocks of a Layout; see kernels/sparse_attention.h. */
#include <bs/autograd/variable.h>
#include <bs/kernels/sparse_attention.h>

namespace bs {

/** @brief softmax(scale q k^T, within the layout) v, for q [batch, heads, queries, head_dim], k and
 * v [batch, kv_heads, keys, head_dim]. Equal to sdd, block_sparse_softmax and dsd, without their
 *  memory: saves its inputs, its result and one number a row. */
Variable sparse_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LayoutPtr& layout, const SparseAttentionOptions& options = {});

/** @brief Self-attention of qkv [batch, sequence, 3 * heads * head_dim], the output of one
 *  projection, giving [batch, sequence, heads * head_dim]. Copies nothing, forward or backward. */
Variable sparse_attention_qkv(const Variable& qkv, int heads, const LayoutPtr& layout,
                              const SparseAttentionOptions& options = {});

}  // namespace bs

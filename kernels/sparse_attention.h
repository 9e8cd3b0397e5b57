#pragma once
/** @file Attention over the blocks of a Layout, fused: scores are made and used up tile by tile and
 *  never stored, so memory is O(queries + keys). The recurrence is that of FlashAttention (Dao, Fu,
 *  Ermon, Rudra, Re, 2022). */
#include <bs/kernels/dispatch.h>
#include <bs/lib/layout.h>

namespace bs {

struct SparseAttentionOptions {
  double scale = 0;              ///< factor of the scores; 0 stands for 1 / sqrt(head_dim)
  bool causal = false;           ///< hide keys behind the query: element column > element row
  Tensor key_padding_mask = {};  ///< boolean [batch, keys], true for keys to see; undefined: all
};

/** @brief What attention gives and what its backward needs of it. */
struct SparseAttentionResult {
  Tensor out;  ///< of q's dtype
  Tensor lse;  ///< log(sum_j exp(s_ij)) [batch, heads, queries], f32 (f64 for f64)
};
struct SparseAttentionGradients {
  Tensor dq, dk, dv;
};

/** @brief out_i = sum_j p_ij v_j, p_ij = exp(s_ij - lse_i), s_ij = scale * q_i . k_j, over the keys
 *  j that the layout, the causal rule and the padding mask leave to query i. A query left with no
 *  key gets zeros, and -infinity as its lse.
 *  @param[in] q [batch, heads, queries, head_dim], floating
 *  @param[in] k,v [batch, kv_heads, keys, head_dim] of q's dtype; kv_heads divides heads, and
 *  neighbouring heads share one of k and v. All three may be any views: nothing is copied as long
 * as the last axis is dense (on CUDA: and rows begin at multiples of 16 bytes).
 *  @param[in] layout of one head, or of `heads`; [queries / block, keys / block]
 *  @return out [batch, heads, queries, head_dim], in memory [batch, queries, heads, head_dim], so
 *  that joining the heads copies nothing
 *  @throws Error when shapes, dtypes or devices do not fit; on CUDA, for a head_dim that is no
 *  multiple of 8 or more than 128 */
SparseAttentionResult sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LayoutPtr& layout,
                                       const SparseAttentionOptions& options = {});

/** @brief dv_j = sum_i p_ij dout_i, ds_ij = scale * p_ij (dout_i . v_j - dout_i . out_i),
 *  dq_i = sum_j ds_ij k_j, dk_j = sum_i ds_ij q_i, with p made anew from lse. Sums have a fixed
 *  order: the same bits in every run and for every number of threads.
 *  @param[in] forward what sparse_attention returned for these arguments
 *  @param[in] dout gradient of out, of its shape and dtype, any strides
 *  @return gradients of the inputs' shapes; in memory [batch, sequence, heads, head_dim] */
SparseAttentionGradients sparse_attention_backward(const Tensor& q, const Tensor& k,
                                                   const Tensor& v,
                                                   const SparseAttentionResult& forward,
                                                   const Tensor& dout, const LayoutPtr& layout,
                                                   const SparseAttentionOptions& options = {});

/** @brief Self-attention on the output of one projection to queries, keys and values.
 *  @param[in] qkv [batch, sequence, 3 * heads * head_dim]: all heads of q, then of k, then of v
 *  @return out [batch, sequence, heads * head_dim], dense; no input is copied */
SparseAttentionResult sparse_attention_qkv(const Tensor& qkv, int heads, const LayoutPtr& layout,
                                           const SparseAttentionOptions& options = {});

/** @brief The gradient of qkv, of its shape, dense: dq, dk and dv are written where they belong. */
Tensor sparse_attention_qkv_backward(const Tensor& qkv, int heads,
                                     const SparseAttentionResult& forward, const Tensor& dout,
                                     const LayoutPtr& layout,
                                     const SparseAttentionOptions& options = {});

/// `scale` in the options is the factor itself. Every tensor may be a view with a dense last axis;
/// lse and the padding mask are dense.
BS_BACKENDS(void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Layout& layout, const Tensor& out, const Tensor& lse,
                                  const SparseAttentionOptions& options, Stream stream);
            void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const SparseAttentionResult& forward, const Tensor& dout,
                                           const Layout& layout,
                                           const SparseAttentionGradients& gradients,
                                           const SparseAttentionOptions& options, Stream stream))

}  // namespace bs

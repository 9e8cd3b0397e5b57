#pragma once
/** @file Attention over the blocks of a Layout, fused: scores are made and used up tile by tile and
 *  never stored, so memory is O(queries + keys). The recurrence is that of FlashAttention (Dao, Fu,
 *  Ermon, Rudra, Re, 2022). */
#include <bs/kernels/dispatch.h>
#include <bs/lib/layout.h>
#include <bs/lib/packed_mask.h>
#include <bs/lib/random.h>

#include <optional>
#include <vector>

namespace bs {

/** @brief What changes scores s_ij and who sees whom. The *distance* of key j from query i is
 *  d = j - (first_query + i) - offset. A key that any rule hides has no weight, and whatever is
 *  stored for it, NaN included, changes no result. */
struct SparseAttentionOptions {
  double scale = 0;              ///< factor of the scores; 0 stands for 1 / sqrt(head_dim)
  bool causal = false;           ///< hide keys behind the query: d > 0
  Tensor key_padding_mask = {};  ///< boolean [batch, keys], true for keys to see; undefined: all

  int64_t offset = 0;  ///< moves the diagonal: keys - queries aligns it at the bottom right
  std::optional<int64_t> window_before = {};  ///< hide keys with d < -window_before
  std::optional<int64_t> window_after = {};   ///< hide keys with d > window_after
  /** Place of query 0 among the layout's rows, as in decoding with a cache: queries are some rows
   *  of the layout, keys its first columns. Unset: 0, and they fill the layout. */
  std::optional<int64_t> first_query = {};

  double softcap = 0;  ///< c: scaled scores s become c tanh(s / c), before any bias; 0: none
  Tensor mask = {};    ///< boolean [batch or 1, heads or 1, queries, keys], true for what to see
  /** A mask in bits, of the layout's block and extents, with one head, `heads`, or batch * heads.
   *  Blocks that it sees nothing of are hidden: take its own layout to skip them. */
  PackedMask packed_mask = {};
  Tensor bias = {};  ///< of q's dtype and the mask's shape, added to scores; -infinity hides
  Tensor relative_bias = {};  ///< table [heads or 1, 2 n + 1]: entry n + clamp(d, -n, n) is added
  Tensor alibi_slopes = {};   ///< [heads]: -slope |d| is added (Press, Smith, Lewis, 2022)
  Tensor sinks = {};          ///< [heads]: a logit that joins each softmax and has no value

  double dropout = 0;       ///< probability that a weight becomes 0; the others grow 1/(1-p) fold
  RandomState random = {};  ///< what dropout draws from, see Generator::next

  /** Ragged batches: sequence b has the queries [query_starts[b], query_starts[b + 1]) of q, whose
   *  batch is 1, and likewise keys. Each is laid over the layout's upper left corner. */
  std::vector<int64_t> query_starts = {}, key_starts = {};
};

/** @brief What attention gives and what its backward needs of it. */
struct SparseAttentionResult {
  Tensor out;  ///< of q's dtype
  Tensor lse;  ///< log(sum_j exp(s_ij)) [batch, heads, queries], f32 (f64 for f64)
};
struct SparseAttentionGradients {
  Tensor dq, dk, dv;
  Tensor dbias = {}, drelative_bias = {}, dsinks = {};  ///< of options' tensors, where wanted
};
/** @brief Which gradients backward makes beside dq, dk and dv. */
struct SparseAttentionWanted {
  bool bias = false, relative_bias = false, sinks = false;
};

/** @brief out_i = sum_j p_ij v_j, p_ij = exp(s_ij - lse_i), s_ij = scale * q_i . k_j, over the keys
 *  j that the layout and the options leave to query i. A query left with no key gets zeros, and
 *  -infinity as its lse.
 *  @param[in] q [batch, heads, queries, head_dim], floating
 *  @param[in] k [batch, kv_heads, keys, head_dim] of q's dtype; kv_heads divides heads, and
 *  neighbouring heads share one of k and v
 *  @param[in] v [batch, kv_heads, keys, value_dim]. All three may be any views. Nothing is copied
 *  as long as the last axis is dense and, on CUDA, rows begin at multiples of 16 bytes.
 *  @param[in] layout of [ceil(queries / block), ceil(keys / block)] blocks, the last of which may
 *  reach over the end. It has one head, `heads`, or batch * heads, each batch entry its own
 *  @return out [batch, heads, queries, value_dim], in memory [batch, queries, heads, value_dim], so
 *  that joining the heads copies nothing
 *  @throws Error when shapes, dtypes or devices do not fit. On CUDA a head_dim and value_dim of no
 *  multiple of 8, or more than 256, do not. Where sums are f32, a scale and softcap lie between
 *  2^-126 and 2^127 */
SparseAttentionResult sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LayoutPtr& layout,
                                       const SparseAttentionOptions& options = {});

/** @brief dv_j = sum_i p_ij dout_i, ds_ij = scale * p_ij (dout_i . v_j - dout_i . out_i),
 *  dq_i = sum_j ds_ij k_j, dk_j = sum_i ds_ij q_i, with p made anew from lse. Sums have a fixed
 *  order: the same bits in every run and for every number of threads.
 *  @param[in] forward what sparse_attention returned for these arguments
 *  @param[in] dout gradient of out, of its shape and dtype, any strides
 *  @param[in] wanted gradients of the options' tensors; those of a bias and of a relative bias cost
 *  another pass
 *  @return gradients of the inputs' shapes; dq, dk and dv in memory [batch, sequence, heads,
 *  head_dim] */
SparseAttentionGradients sparse_attention_backward(const Tensor& q, const Tensor& k,
                                                   const Tensor& v,
                                                   const SparseAttentionResult& forward,
                                                   const Tensor& dout, const LayoutPtr& layout,
                                                   const SparseAttentionOptions& options = {},
                                                   const SparseAttentionWanted& wanted = {});

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

/// `scale` in the options is the factor itself. Tensors may be views with a dense last axis.
/// lse, the padding mask and tables are dense, and tables of lse's dtype. Masks and biases have a
/// stride of 0 where they are shared.
/// Of gradients, `dbias` holds zeros of lse's dtype to add to, where it is defined.
/// `drelative_bias`, of [heads or 1, height + width - 1] of the layout, takes the sums of ds over
/// each diagonal. That of key j and query i is number j - i + height - 1.
/// refused_head_dim says what a head_dim that the backend does not take is not, else null.
BS_BACKENDS(void sparse_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Layout& layout, const Tensor& out, const Tensor& lse,
                                  const SparseAttentionOptions& options, Stream stream);
            void sparse_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const SparseAttentionResult& forward, const Tensor& dout,
                                           const Layout& layout,
                                           const SparseAttentionGradients& gradients,
                                           const SparseAttentionOptions& options, Stream stream);
            const char* refused_head_dim(int64_t head_dim))

}  // namespace bs

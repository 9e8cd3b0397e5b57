#pragma once
/** @file What the front doors of attention verify and make, and the rules that both twins derive
 *  alike. */
#include <bs/kernels/sparse_attention.h>

namespace bs::detail {

/** @throws Error naming `op` when operands, layout and options do not fit each other. */
void check_attention(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayoutPtr& layout, const SparseAttentionOptions& options);

/** @throws Error naming `op` unless `forward` and `dout` are what such operands give. */
void check_attention_forward(const char* op, const Tensor& q, const Tensor& v,
                             const SparseAttentionResult& forward, const Tensor& dout);

/** @brief The type of sums. */
inline DType attention_sums(const Tensor& q) { return q.dtype() == f64 ? f64 : f32; }
/** @brief `x`, or a copy of it where its last axis is not dense. */
Tensor dense_attention_rows(const Tensor& x);
/** @brief Options as the twins take them: the scale itself, tables dense and in the type of sums,
 *  masks and biases over all scores. */
SparseAttentionOptions resolved_attention(const SparseAttentionOptions& options, const Tensor& q,
                                          const Tensor& k);
/** @brief [batch, heads, sequence, head_dim] over memory [batch, sequence, heads, head_dim]. */
Tensor empty_attention_heads(const Tensor& like, int64_t head_dim);
SparseAttentionResult empty_attention_result(const Tensor& q, const Tensor& v);

/** @brief Place i of a query (its row of the layout) sees place j of a key where first <= j - i <=
 *  last. */
struct AttentionBand {
  static constexpr int64_t far = int64_t{1} << 30;  ///< stands for no bound
  int64_t first = -far, last = far;
  bool bounded_before() const { return first != -far; }
  bool bounded_after() const { return last != far; }
};
AttentionBand attention_band(const SparseAttentionOptions& options);

/** @brief Sequences of the batch: its entries, or the ragged ones. */
inline int64_t attention_sequences(const Tensor& q, const SparseAttentionOptions& options) {
  const auto starts = static_cast<int64_t>(options.query_starts.size());
  return starts > 0 ? starts - 1 : q.size(0);
}

/** @brief The head of a layout that holds head `head` of sequence `sequence`. */
constexpr int64_t attention_layout_head(int64_t layout_heads, int64_t heads, int64_t sequence,
                                        int64_t head) {
  return layout_heads == 1 ? 0 : layout_heads == heads ? head : sequence * heads + head;
}

/** @brief Which random word decides about the weight of key `key` in row `row` of lse: word key % 4
 *  of this block of the sequence. */
constexpr uint64_t attention_dropout_block(uint64_t row, uint64_t key) {
  return row << 28 | key >> 2;
}

}  // namespace bs::detail

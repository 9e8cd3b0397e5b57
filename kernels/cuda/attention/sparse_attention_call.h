#pragma once
/** @file What the host's side of each kernel of attention starts from. */
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/stream.h>
#include <bs/kernels/cuda/device/attention/attention_problem.cuh>

#include <cstdint>

namespace bs::cuda {

/** @brief A call of attention as kernels take it, and what their arguments point at. */
struct AttentionCall {
  device::AttentionProblem shape = {};
  device::AttentionScores<void, void> scores = {};
  unsigned rules = 0;  ///< device::AttentionRule bits
  DType dtype = f32;
  int64_t sequences = 0, longest_queries = 0, longest_keys = 0;
  Tensor query_starts = {}, key_starts = {};
};

/** @throws Error for more places than the kernels can number. */
AttentionCall attention_call(const Tensor& q, const Tensor& k, const Tensor& v,
                             const Layout& layout, const SparseAttentionOptions& options);

/** @brief `x` itself where its rows begin at multiples of 16 bytes, else a dense copy. */
Tensor aligned_heads(const Tensor& x);

/** @brief For operands: device::AttentionRows<const void>; for results: <void>. */
template <class Void>
device::AttentionRows<Void> heads_of(const Tensor& x) {
  return {x.data(), x.strides()[0], x.strides()[1], x.strides()[2]};
}

/** @brief Rows of blocks, as they are stored. */
inline device::BlockLines rows_of(const LayoutView& v) {
  return {v.row_offsets, v.col_of, v.heads, v.rows};
}

/** @brief What forward kernels read and write. Operands are aligned_heads(). */
device::AttentionForwardArguments<void, void> forward_arguments(const AttentionCall& call,
                                                                const Tensor& q, const Tensor& k,
                                                                const Tensor& v,
                                                                const Layout& layout,
                                                                const SparseAttentionResult& to);

/** @throws Error naming `op` for more CTAs than one launch can have. */
unsigned checked_ctas(const char* op, int64_t ctas);

}  // namespace bs::cuda

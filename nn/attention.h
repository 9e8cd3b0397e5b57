#pragma once
/** @file Multi-head self-attention over the blocks of a pattern. */
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/kept.h>
#include <bs/lib/patterns.h>
#include <bs/nn/attention_heads.h>
#include <bs/nn/dropout.h>
#include <bs/nn/kv_cache.h>
#include <bs/nn/linear.h>
#include <bs/nn/norm.h>

#include <functional>
#include <memory>
#include <optional>

namespace bs::nn {

/** @brief Makes the layout for a size, for example
 *  `[](const patterns::Size& s) { return patterns::fixed(s, {.causal = true}); }`. */
using Pattern = std::function<LayoutPtr(const patterns::Size&)>;

/** @brief Layouts of as many sizes that an attention layer keeps; the one least recently asked for
 *  is made anew. */
inline constexpr size_t most_layouts = 64;

struct SparseAttentionOptions {
  int64_t width = 0;  ///< features of input and output
  int heads = 1;      ///< share the width evenly
  int block = 32;
  Pattern pattern = {};  ///< of [heads, n, n] blocks, n = ceil(sequence / block)
  bool causal = false;
  bool bias = true;             ///< of both projections
  double dropout = 0;           ///< of the output
  int kv_heads = 0;             ///< neighbouring heads share one of these; 0: as many as heads
  double rope_base = 0;         ///< turns queries and keys by their places; 0: not
  bool query_key_norm = false;  ///< RMS norm of each head's queries and keys
  double weight_dropout = 0;    ///< of the weights, while training
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief x -> out(attention(qkv(x))). The channels of qkv are all of q, then k, then v, each the
 *  heads one after the other. With kv_heads, k and v have only theirs. Scores are scaled by
 *  1 / sqrt(width / heads). Norms of queries and keys are q_norm.weight and k_norm.weight. */
class SparseAttention : public Module {
 public:
  using Options = SparseAttentionOptions;
  /** @throws Error unless the heads divide the width, and kv_heads the heads; or without a pattern.
   */
  explicit SparseAttention(const Options& options);
  /** @param[in] x [batch, sequence, width]
   *  @param[in] key_padding_mask boolean [batch, sequence], true for what may be looked at; or
   *  undefined */
  Variable forward(const Variable& x, const Tensor& key_padding_mask = {}) const;
  /** @brief Attention of the tokens that follow those in `cache`, which takes them too. The pattern
   *  is that of the cache's capacity. Nothing is recorded for backward.
   *  @throws Error for attention that is not causal, or a cache that is full. */
  Variable forward(const Variable& x, KVCache& cache) const;
  /** @brief A cache that fits this layer, in pages of `page` tokens; 0: without pages. */
  KVCache make_cache(int64_t batch, int64_t capacity, int64_t page = 0) const;

  /** @brief The layout for a sequence, made at first use and kept while few others are asked for.
   * Thread-safe. */
  LayoutPtr layout(int64_t sequence) const;

  Linear qkv;  ///< width -> width + 2 kv_heads * width / heads
  Linear out;  ///< width -> width

 private:
  void check_input(const Variable& x) const;
  detail::AttentionHeads project(const Variable& x, int64_t first_place) const;
  bs::SparseAttentionOptions scores() const;
  Options options_;
  int64_t head_dim_, kv_heads_;
  std::optional<RMSNorm> q_norm_, k_norm_;
  Dropout dropout_;
  std::unique_ptr<Cache> layouts_ = std::make_unique<Cache>(most_layouts);  ///< by blocks
};

}  // namespace bs::nn

#pragma once
/** @file Multi-head attention with PyTorch's parameters, over the blocks of a pattern. */
#include <bs/kernels/sparse_attention.h>
#include <bs/nn/attention.h>
#include <bs/nn/kv_cache.h>
#include <bs/nn/norm.h>

#include <optional>

namespace bs::nn {

struct MultiheadAttentionOptions {
  int64_t width = 0;        ///< features of queries and of the output
  int heads = 1;            ///< share the width evenly
  int kv_heads = 0;         ///< neighbouring heads share one of these; 0: as many as heads
  int64_t key_width = 0;    ///< features of keys; 0: the width
  int64_t value_width = 0;  ///< features of values; 0: the width
  bool bias = true;         ///< of all projections
  double dropout = 0;       ///< of the weights, while training
  int block = 32;
  Pattern pattern = {};  ///< of [heads, ceil(queries / block), ceil(keys / block)]; none: dense
  bool causal = false;
  std::optional<int64_t> window_before = {};  ///< keys at most this far before their query
  double softcap = 0;                         ///< see bs::SparseAttentionOptions
  double rope_base = 0;                       ///< turns queries and keys by their places; 0: not
  bool query_key_norm = false;                ///< RMS norm of each head's queries and keys
  Generator* generator = nullptr;             ///< for dropout; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief What one call looks at. */
struct MultiheadAttentionMasks {
  Tensor key_padding_mask =
      {};  ///< boolean [batch, keys], true for keys to see: PyTorch's, negated
  /** boolean [queries, keys] or [batch or 1, heads or 1, queries, keys], true for what to see; or
   *  floating, added to scores. */
  Tensor attention_mask = {};
};

/** @brief out(attention(q(query), k(key), v(value))), torch.nn.MultiheadAttention with batch_first.
 *
 *  Parameters have PyTorch's names and shapes: in_proj_weight [3 width, width] where keys and
 * values are as wide as queries and heads share none, else q_proj_weight, k_proj_weight and
 * v_proj_weight; in_proj_bias; out_proj.weight and out_proj.bias. They start as PyTorch's do. */
class MultiheadAttention : public Module {
 public:
  using Options = MultiheadAttentionOptions;
  /** @throws Error unless the heads divide the width, and kv_heads the heads. */
  explicit MultiheadAttention(const Options& options);
  /** @param[in] query [batch, queries, width]
   *  @param[in] key,value [batch, keys, their widths]; any number of queries and keys
   *  @return [batch, queries, width] */
  Variable forward(const Variable& query, const Variable& key, const Variable& value,
                   const MultiheadAttentionMasks& masks = {}) const;
  /** @brief Self-attention. */
  Variable forward(const Variable& x, const MultiheadAttentionMasks& masks = {}) const;
  /** @brief Self-attention of the tokens that follow those in `cache`, which takes them too. The
   *  pattern is that of the cache's capacity. Nothing is recorded for backward. */
  Variable forward(const Variable& x, KVCache& cache) const;

  /** @brief A cache that fits this layer, in pages of `page` tokens; 0: without pages. */
  KVCache make_cache(int64_t batch, int64_t capacity, int64_t page = 0) const;
  const Options& options() const { return options_; }

  Variable in_proj_weight, in_proj_bias;
  Variable q_proj_weight, k_proj_weight, v_proj_weight;
  Linear out_proj;

 private:
  struct Heads {
    Variable q, k, v;
  };
  Heads project(const Variable& query, const Variable& key, const Variable& value,
                int64_t first_place) const;
  Variable attend(const Heads& heads, const LayoutPtr& layout,
                  bs::SparseAttentionOptions options) const;
  LayoutPtr layout(int64_t queries, int64_t keys) const;

  Options options_;
  int64_t head_dim_, kv_heads_;
  std::optional<RMSNorm> q_norm_, k_norm_;
  mutable Cache layouts_{most_layouts};  ///< by blocks of queries and keys
};

}  // namespace bs::nn

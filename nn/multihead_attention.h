#pragma once
/** @file Multi-head attention with PyTorch's parameters, over the blocks of a pattern. */
#include <bs/kernels/sparse_attention.h>
#include <bs/nn/attention.h>
#include <bs/nn/attention_heads.h>
#include <bs/nn/kv_cache.h>
#include <bs/nn/norm.h>

#include <memory>
#include <optional>
#include <vector>

namespace bs::nn {

struct MultiheadAttentionOptions {
  int64_t width = 0;        ///< features of queries and of the output
  int heads = 1;            ///< share the width evenly
  int kv_heads = 0;         ///< neighbouring heads share one of these; 0: as many as heads
  int64_t key_width = 0;    ///< features of keys; 0: the width
  int64_t value_width = 0;  ///< features of values; 0: the width
  int64_t value_dim = 0;    ///< features of a head's values; 0: width / heads
  bool bias = true;         ///< of all projections
  double dropout = 0;       ///< of the weights, while training
  int block = 32;
  Pattern pattern = {};  ///< of [heads, ceil(queries / block), ceil(keys / block)]; none: dense
  bool causal = false;
  int64_t offset = 0;  ///< moves the diagonal: keys - queries aligns it at the bottom right
  std::optional<int64_t> window_before = {};  ///< keys at most this far before their query
  std::optional<int64_t> window_after = {};   ///< keys at most this far behind their query
  double scale = 0;                ///< factor of the scores; 0 stands for 1 / sqrt(width / heads)
  double softcap = 0;              ///< see bs::SparseAttentionOptions
  bool alibi = false;              ///< a buffer of slopes, see alibi_slopes()
  int64_t relative_reach = 0;      ///< n: a learnt bias of distances -n to n and beyond; 0: none
  bool sinks = false;              ///< each head learns a logit that takes weight and has no value
  double rope_base = 0;            ///< turns queries and keys by their places; 0: not
  bool query_key_norm = false;     ///< RMS norm of each head's queries and keys
  Generator* generator = nullptr;  ///< for dropout; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief What one call looks at. */
struct MultiheadAttentionMasks {
  Tensor key_padding_mask =
      {};  ///< boolean [batch, keys], true for keys to see: PyTorch's, negated
  /** boolean [queries, keys] or [batch or 1, heads or 1, queries, keys], true for what to see. Or
   *  floating, added to scores: a Variable that requires a gradient gets one. */
  Variable attention_mask = {};
  /** A mask in bits, see bs::SparseAttentionOptions. Of a layer without a pattern its blocks are
   *  those of the call. */
  PackedMask packed_mask = {};
  /** The blocks of this call in the place of the pattern's, as block_topk makes them: of one head,
   *  of all, or of batch * heads. */
  LayoutPtr layout = nullptr;
  /** Ragged batches: sequences one behind the other in a batch of 1, see
   *  bs::SparseAttentionOptions. The pattern is that of the longest, and places begin anew. Of
   * keys: empty, as of queries. */
  std::vector<int64_t> query_starts = {}, key_starts = {};
};

/** @brief The slopes of Press, Smith and Lewis (2022), [heads] f32: powers of 2^(-8 / heads). Where
 *  heads are no power of two, those of the next lower one, and every other one of the next higher.
 */
Tensor alibi_slopes(int heads);

/** @brief out(attention(q(query), k(key), v(value))), torch.nn.MultiheadAttention with batch_first.
 *
 *  Parameters have PyTorch's names and shapes, and start as PyTorch's do: in_proj_bias,
 *  out_proj.weight and out_proj.bias. Where keys and values are as wide as queries and heads share
 *  none there is in_proj_weight [3 width, width], else q_proj_weight, k_proj_weight and
 *  v_proj_weight. Options add q_norm.weight and k_norm.weight, relative_bias [heads, 2 n + 1] and
 * sinks [heads], which start at 0, and the buffer alibi_slopes [heads]. */
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
  Variable relative_bias, sinks, slopes;  ///< undefined where not asked for
  Linear out_proj;

 private:
  using Heads = detail::AttentionHeads;
  void register_scores();
  Heads project(const Variable& query, const Variable& key, const Variable& value) const;
  Heads placed(Heads heads, int64_t first_place, const MultiheadAttentionMasks& masks) const;
  void set_scores(bs::SparseAttentionOptions& options) const;
  Variable attend(const Heads& heads, const LayoutPtr& layout, bs::SparseAttentionOptions options,
                  const Variable& bias) const;
  LayoutPtr layout(int64_t queries, int64_t keys) const;
  LayoutPtr layout_of(const MultiheadAttentionMasks& masks, int64_t queries, int64_t keys) const;

  Options options_;
  int64_t head_dim_, value_dim_, kv_heads_;
  std::optional<RMSNorm> q_norm_, k_norm_;
  /** By blocks of queries and keys. */
  std::unique_ptr<Cache> layouts_ = std::make_unique<Cache>(most_layouts);
};

}  // namespace bs::nn

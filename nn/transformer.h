#pragma once
/** @file A transformer (Vaswani et al., 2017) with block-sparse attention, norms first as in GPT-2
 *  (Radford et al., 2019). */
#include <bs/nn/attention.h>
#include <bs/nn/embedding.h>
#include <bs/nn/norm.h>
#include <bs/nn/sequential.h>
#include <bs/nn/state_dict.h>

#include <memory>

namespace bs::nn {

struct TransformerBlockOptions {
  int64_t width = 0;
  int heads = 1;
  int block = 32;
  Pattern pattern = {};  ///< of the attention
  bool causal = true;
  int64_t hidden = 0;        ///< features between fc1 and fc2; 0: four times the width
  Pattern mlp_pattern = {};  ///< of fc1 [hidden, width] and fc2 [width, hidden]; none: dense
  int mlp_factors = 0;       ///< fc1 and fc2 are Kronecker products of so many factors; 0: not
  double dropout = 0;        ///< of what is added to the residual stream
  int kv_heads = 0;          ///< see SparseAttentionOptions, as what follows
  double rope_base = 0;      ///< turns queries and keys by their places; 0: not
  bool query_key_norm = false;
  double weight_dropout = 0;  ///< of the weights of attention
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief A residual stream whose last sum is left to the norm that reads it: h + added. */
struct Residual {
  Variable h;
  Variable added;  ///< undefined: nothing
};

/** @brief h + attention(norm1(h)), then h + fc2(gelu(fc1(norm2(h)))) with the tanh form of GELU. */
class TransformerBlock : public Module {
 public:
  using Options = TransformerBlockOptions;
  explicit TransformerBlock(const Options& options);
  /** @param[in] h [batch, sequence, width]
   *  @param[in] key_padding_mask boolean [batch, sequence], true for what may be looked at; or
   *  undefined */
  Variable forward(const Variable& h, const Tensor& key_padding_mask = {}) const;
  /** @brief The same between blocks, where each norm takes the sum before it in its own pass. */
  Residual forward(const Residual& x, const Tensor& key_padding_mask = {}) const;
  /** @brief The same for the tokens that follow those in `cache`. */
  Residual forward(const Residual& x, KVCache& cache) const;

  LayerNorm norm1;
  SparseAttention attention;
  LayerNorm norm2;
  Layer fc1, fc2;  ///< Linear, BlockSparseLinear or KroneckerLinear

 private:
  Residual after_attention(const Variable& h, const Variable& attended) const;
  Variable feed_forward(const Variable& x) const;
  Dropout dropout_;
  bool activates_itself_;  ///< fc1 has the GELU in its product
};

struct SparseTransformerOptions {
  int64_t vocabulary = 256;
  int64_t context = 256;  ///< longest sequence
  int64_t width = 128;
  int layers = 4;
  int heads = 4;
  int block = 32;
  Pattern pattern = {};
  bool causal = true;
  int64_t hidden = 0;        ///< see TransformerBlockOptions
  Pattern mlp_pattern = {};  ///< see TransformerBlockOptions
  int mlp_factors = 0;       ///< see TransformerBlockOptions
  double dropout = 0;        ///< of the embeddings and of what is added to the residual stream
  int kv_heads = 0;          ///< see SparseAttentionOptions, as query_key_norm
  double rope_base =
      0;  ///< places turn queries and keys, and there is no embedding of them; 0: not
  bool query_key_norm = false;
  double weight_dropout = 0;  ///< of the weights of attention
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief A language model: token and learnt position embeddings (or RoPE), blocks, a norm, and a
 * head without bias.
 *
 *  Starts as GPT-2 does: weights normal with deviation 0.02, those that end a residual branch
 *  divided by sqrt(2 layers), biases zero. A block-sparse weight's deviation is divided by the
 *  square root of its density, which gives its outputs the variance of the dense layer's. The
 *  products of a Kronecker layer's factors have the dense weight's deviation. */
class SparseTransformer : public Module {
 public:
  using Options = SparseTransformerOptions;
  /** @throws Error when extents do not fit each other. */
  explicit SparseTransformer(const Options& options);
  /** @param[in] tokens [batch, sequence] i64 or i32
   *  @param[in] key_padding_mask boolean [batch, sequence], false for padding; or undefined
   *  @return logits [batch, sequence, vocabulary] */
  Variable forward(const Tensor& tokens, const Tensor& key_padding_mask = {}) const;
  /** @brief Logits of the tokens that follow those in the caches, of which each block has one.
   *  Nothing is recorded for backward. */
  Variable forward(const Tensor& tokens, std::vector<KVCache>& caches) const;
  /** @brief A cache for each block, for as many tokens as the context has; in pages of `page`
   *  tokens, or without pages. */
  std::vector<KVCache> make_caches(int64_t batch, int64_t page = 0) const;

  const Options& options() const { return options_; }

  Embedding embedding;
  Embedding position;  ///< no part of a model with RoPE
  std::vector<std::unique_ptr<TransformerBlock>> blocks;
  LayerNorm norm;
  Linear head;

 private:
  void init_weights() const;
  Variable embed(const Tensor& tokens, int64_t first_place) const;
  Options options_;
  Dropout dropout_;
};

/** @brief From the names of torch.nn.TransformerEncoderLayer to a TransformerBlock's, and from
 *  "layers" to "blocks", for renamed(). The layer must have norm_first, and GELU in its tanh form.
 */
Renaming torch_encoder_names();

}  // namespace bs::nn

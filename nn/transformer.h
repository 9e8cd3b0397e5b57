#pragma once
/** @file A transformer (Vaswani et al., 2017) with block-sparse attention, norms first as in GPT-2
 *  (Radford et al., 2019). */
#include <bs/nn/attention.h>
#include <bs/nn/embedding.h>
#include <bs/nn/norm.h>
#include <bs/nn/sequential.h>

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
  double dropout = 0;        ///< of what is added to the residual stream
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief h + attention(norm1(h)), then h + fc2(gelu(fc1(norm2(h)))) with the tanh form of GELU. */
class TransformerBlock : public Module {
 public:
  using Options = TransformerBlockOptions;
  explicit TransformerBlock(const Options& options);
  /** @param[in] h [batch, sequence, width] */
  Variable forward(const Variable& h) const;

  LayerNorm norm1;
  SparseAttention attention;
  LayerNorm norm2;
  Layer fc1, fc2;  ///< Linear, or BlockSparseLinear

 private:
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
  double dropout = 0;        ///< of the embeddings and of what is added to the residual stream
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief A language model: token and learnt position embeddings, blocks, a norm, and a head
 * without bias.
 *
 *  Starts as GPT-2 does: weights normal with deviation 0.02, those that end a residual branch
 *  divided by sqrt(2 layers), biases zero. A block-sparse weight's deviation is divided by the
 *  square root of its density, which gives its outputs the variance of the dense layer's. */
class SparseTransformer : public Module {
 public:
  using Options = SparseTransformerOptions;
  /** @throws Error when extents do not fit each other. */
  explicit SparseTransformer(const Options& options);
  /** @param[in] tokens [batch, sequence] i64 or i32; the sequence is a multiple of the block
   *  @return logits [batch, sequence, vocabulary] */
  Variable forward(const Tensor& tokens) const;

  const Options& options() const { return options_; }

  Embedding embedding;
  Embedding position;
  std::vector<std::unique_ptr<TransformerBlock>> blocks;
  LayerNorm norm;
  Linear head;

 private:
  void init_weights() const;
  Options options_;
  Dropout dropout_;
};

}  // namespace bs::nn

#pragma once
/** @file The transformer of encoder and decoder (Vaswani et al., 2017) with PyTorch's parameters,
 * over the blocks of patterns. */
#include <bs/nn/dropout.h>
#include <bs/nn/multihead_attention.h>
#include <bs/nn/norm.h>

#include <memory>
#include <vector>

namespace bs::nn {

struct TransformerLayerOptions {
  int64_t width = 0;
  int heads = 1;
  int64_t hidden = 2048;    ///< features between linear1 and linear2
  double dropout = 0.1;     ///< of weights, of hidden features, and of what is added
  bool gelu = false;        ///< GELU in the place of ReLU
  bool norm_first = false;  ///< norms before attention and linear layers, not behind them
  double eps = 1e-5;
  int block = 32;
  Pattern pattern = {};            ///< of self-attention; none: dense
  Pattern cross_pattern = {};      ///< of a decoder's attention to the encoder; none: dense
  bool causal = false;             ///< of self-attention
  int kv_heads = 0;                ///< of all attention: neighbouring heads share one; 0: as heads
  double rope_base = 0;            ///< turns self-attention's queries and keys by places; 0: not
  bool query_key_norm = false;     ///< of all attention, see MultiheadAttentionOptions
  Generator* generator = nullptr;  ///< for dropout; null: the default generator
  DType dtype = f32;
  Device device = Device::cpu();
};

/** @brief torch.nn.TransformerEncoderLayer with batch_first: self-attention, then linear2(dropout(
 *  activation(linear1))), each added to what came in, with a norm. */
class TransformerEncoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  explicit TransformerEncoderLayer(const Options& options);
  /** @param[in] x [batch, sequence, width] */
  Variable forward(const Variable& x, const MultiheadAttentionMasks& masks = {}) const;

  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;

 private:
  Dropout dropout_;
  bool gelu_, norm_first_;
};

/** @brief torch.nn.TransformerDecoderLayer with batch_first: self-attention, attention to what an
 *  encoder gave, and the linear layers. */
class TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  explicit TransformerDecoderLayer(const Options& options);
  /** @param[in] x [batch, sequence, width]
   *  @param[in] memory [batch, length, width], of the encoder; memory_masks are about it */
  Variable forward(const Variable& x, const Variable& memory,
                   const MultiheadAttentionMasks& masks = {},
                   const MultiheadAttentionMasks& memory_masks = {}) const;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;

 private:
  Dropout dropout_;
  bool gelu_, norm_first_;
};

struct TransformerOptions {
  TransformerLayerOptions layer = {};  ///< `causal` is the decoder's; the encoder sees both sides
  int encoder_layers = 6;
  int decoder_layers = 6;
};

/** @brief Encoder layers and a norm. */
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerLayerOptions& layer, int count);
  Variable forward(const Variable& x, const MultiheadAttentionMasks& masks = {}) const;
  std::vector<std::unique_ptr<TransformerEncoderLayer>> layers;
  LayerNorm norm;
};

/** @brief Decoder layers and a norm. */
class TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerLayerOptions& layer, int count);
  Variable forward(const Variable& x, const Variable& memory,
                   const MultiheadAttentionMasks& masks = {},
                   const MultiheadAttentionMasks& memory_masks = {}) const;
  std::vector<std::unique_ptr<TransformerDecoderLayer>> layers;
  LayerNorm norm;
};

/** @brief What each attention of a Transformer looks at: PyTorch's src_mask, tgt_mask and
 *  memory_mask, each beside its key_padding_mask. */
struct TransformerMasks {
  MultiheadAttentionMasks source = {};  ///< of the encoder's self-attention
  MultiheadAttentionMasks target = {};  ///< of the decoder's; `causal` of the layers holds besides
  MultiheadAttentionMasks memory = {};  ///< of the decoder's attention to what the encoder gives
};

/** @brief torch.nn.Transformer with batch_first: the decoder attends to what the encoder gives of
 *  the source. Parameters have PyTorch's names, and matrices start as PyTorch's do. */
class Transformer : public Module {
 public:
  using Options = TransformerOptions;
  explicit Transformer(const Options& options);
  /** @param[in] source [batch, length, width]
   *  @param[in] target [batch, sequence, width]
   *  @param[in] masks each for the queries and keys of its attention; none stands for another, so
   *  padding of the source is named twice */
  Variable forward(const Variable& source, const Variable& target,
                   const TransformerMasks& masks) const;
  /** @brief With padding alone, which the memory shares with the source.
   *  @param[in] source_mask boolean [batch, length], true for what is no padding; or undefined
   *  @param[in] target_mask boolean [batch, sequence], likewise */
  Variable forward(const Variable& source, const Variable& target, const Tensor& source_mask = {},
                   const Tensor& target_mask = {}) const;

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace bs::nn

#include <bs/nn/encoder_decoder.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/nn/init.h>

#include <utility>

namespace bs::nn {

namespace {

using Options = TransformerLayerOptions;

MultiheadAttentionOptions cross_attention(const Options& o) {
  return {.width = o.width,
          .heads = o.heads,
          .kv_heads = o.kv_heads,
          .dropout = o.dropout,
          .block = o.block,
          .pattern = o.cross_pattern,
          .query_key_norm = o.query_key_norm,
          .generator = o.generator,
          .dtype = o.dtype,
          .device = o.device};
}

MultiheadAttentionOptions self_attention(const Options& o) {
  MultiheadAttentionOptions options = cross_attention(o);
  options.pattern = o.pattern;
  options.causal = o.causal;
  options.rope_base = o.rope_base;
  return options;
}

LinearOptions linear(const Options& o, int64_t in, int64_t out) {
  return {.in = in, .out = out, .dtype = o.dtype, .device = o.device};
}

LayerNormOptions norm_of(const Options& o) {
  return {.width = o.width, .eps = o.eps, .dtype = o.dtype, .device = o.device};
}

/// What the parts of a layer add to x, each with a norm before it or behind the sum. A sum and the
/// norm that follows are one pass: so with norms before, the last sum waits for the next norm.
class Residuals {
 public:
  Residuals(Variable x, bool norm_first) : sum_(std::move(x)), norm_first_(norm_first) {}

  template <class F>
  void add(const LayerNorm& norm, F&& f) {
    if (norm_first_) {
      const auto [sum, normed] = norm.forward_sum(sum_, waiting_);
      sum_ = sum;
      waiting_ = f(normed);
    } else {
      sum_ = norm.forward_sum(sum_, f(sum_)).norm;
    }
  }
  Variable sum() const { return waiting_.defined() ? sum_ + waiting_ : sum_; }

 private:
  Variable sum_, waiting_;
  bool norm_first_;
};

template <class Layer>
Variable feed_forward(const Layer& layer, const Dropout& dropout, bool gelu, const Variable& x) {
  const Variable inner = layer.linear1.forward(x);
  const Variable active = dropout.forward(inner, gelu ? Activation::gelu : Activation::relu);
  return dropout.forward(layer.linear2.forward(active));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const Options& o)
    : self_attn(self_attention(o)),
      linear1(linear(o, o.width, o.hidden)),
      linear2(linear(o, o.hidden, o.width)),
      norm1(norm_of(o)),
      norm2(norm_of(o)),
      dropout_({.p = o.dropout, .generator = o.generator}),
      gelu_(o.gelu),
      norm_first_(o.norm_first) {
  register_module("self_attn", self_attn);
  register_module("linear1", linear1);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("dropout", dropout_);
}

Variable TransformerEncoderLayer::forward(const Variable& x,
                                          const MultiheadAttentionMasks& masks) const {
  Residuals h(x, norm_first_);
  h.add(norm1, [&](const Variable& v) { return dropout_.forward(self_attn.forward(v, masks)); });
  h.add(norm2, [&](const Variable& v) { return feed_forward(*this, dropout_, gelu_, v); });
  return h.sum();
}

TransformerDecoderLayer::TransformerDecoderLayer(const Options& o)
    : self_attn(self_attention(o)),
      multihead_attn(cross_attention(o)),
      linear1(linear(o, o.width, o.hidden)),
      linear2(linear(o, o.hidden, o.width)),
      norm1(norm_of(o)),
      norm2(norm_of(o)),
      norm3(norm_of(o)),
      dropout_({.p = o.dropout, .generator = o.generator}),
      gelu_(o.gelu),
      norm_first_(o.norm_first) {
  register_module("self_attn", self_attn);
  register_module("multihead_attn", multihead_attn);
  register_module("linear1", linear1);
  register_module("linear2", linear2);
  register_module("norm1", norm1);
  register_module("norm2", norm2);
  register_module("norm3", norm3);
  register_module("dropout", dropout_);
}

Variable TransformerDecoderLayer::forward(const Variable& x, const Variable& memory,
                                          const MultiheadAttentionMasks& masks,
                                          const MultiheadAttentionMasks& memory_masks) const {
  Residuals h(x, norm_first_);
  h.add(norm1, [&](const Variable& v) { return dropout_.forward(self_attn.forward(v, masks)); });
  h.add(norm2, [&](const Variable& v) {
    return dropout_.forward(multihead_attn.forward(v, memory, memory, memory_masks));
  });
  h.add(norm3, [&](const Variable& v) { return feed_forward(*this, dropout_, gelu_, v); });
  return h.sum();
}

TransformerEncoder::TransformerEncoder(const TransformerLayerOptions& layer, int count)
    : norm(norm_of(layer)) {
  BS_CHECK(count >= 0 && count <= most_layers, "transformer_encoder: {} layers", count);
  for (int i = 0; i < count; ++i) {
    layers.push_back(std::make_unique<TransformerEncoderLayer>(layer));
    register_module("layers." + std::to_string(i), *layers.back());
  }
  register_module("norm", norm);
}

Variable TransformerEncoder::forward(const Variable& x,
                                     const MultiheadAttentionMasks& masks) const {
  BS_CHECK(norm.weight.defined(), "transformer_encoder: the model was moved away");
  Variable h = x;
  for (const auto& layer : layers) h = layer->forward(h, masks);
  return norm.forward(h);
}

TransformerDecoder::TransformerDecoder(const TransformerLayerOptions& layer, int count)
    : norm(norm_of(layer)) {
  BS_CHECK(count >= 0 && count <= most_layers, "transformer_decoder: {} layers", count);
  for (int i = 0; i < count; ++i) {
    layers.push_back(std::make_unique<TransformerDecoderLayer>(layer));
    register_module("layers." + std::to_string(i), *layers.back());
  }
  register_module("norm", norm);
}

Variable TransformerDecoder::forward(const Variable& x, const Variable& memory,
                                     const MultiheadAttentionMasks& masks,
                                     const MultiheadAttentionMasks& memory_masks) const {
  BS_CHECK(norm.weight.defined(), "transformer_decoder: the model was moved away");
  Variable h = x;
  for (const auto& layer : layers) h = layer->forward(h, memory, masks, memory_masks);
  return norm.forward(h);
}

namespace {
TransformerLayerOptions encoder_layer(TransformerLayerOptions layer) {
  layer.causal = false;
  return layer;
}
}  // namespace

Transformer::Transformer(const TransformerOptions& o)
    : encoder(encoder_layer(o.layer), o.encoder_layers), decoder(o.layer, o.decoder_layers) {
  register_module("encoder", encoder);
  register_module("decoder", decoder);
  for (const Variable& p : parameters())
    if (p.rank() > 1) init::xavier_uniform(p.data());
}

Variable Transformer::forward(const Variable& source, const Variable& target,
                              const TransformerMasks& masks) const {
  const Variable memory = encoder.forward(source, masks.source);
  return decoder.forward(target, memory, masks.target, masks.memory);
}

Variable Transformer::forward(const Variable& source, const Variable& target,
                              const Tensor& source_mask, const Tensor& target_mask) const {
  return forward(source, target,
                 {.source = {.key_padding_mask = source_mask},
                  .target = {.key_padding_mask = target_mask},
                  .memory = {.key_padding_mask = source_mask}});
}

}  // namespace bs::nn

#include <bs/nn/transformer.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/feed_forward.h>
#include <bs/autograd/view.h>
#include <bs/nn/block_sparse_linear.h>
#include <bs/nn/init.h>
#include <bs/nn/kronecker_linear.h>
#include <bs/nn/linear.h>

#include <cmath>

namespace bs::nn {

namespace {

/// A projection of the feed-forward part: dense, or over a pattern of its own extents or a product
/// of factors, which then applies `activation` itself.
Layer projection(const TransformerBlockOptions& o, int64_t in, int64_t out,
                 Activation activation = Activation::none) {
  BS_CHECK(!o.mlp_pattern || o.mlp_factors == 0,
           "transformer: a feed-forward part with a pattern and {} factors", o.mlp_factors);
  if (o.mlp_factors > 0)
    return Layer::make<KroneckerLinear>({.in = in,
                                         .out = out,
                                         .count = o.mlp_factors,
                                         .activation = activation,
                                         .dtype = o.dtype,
                                         .device = o.device});
  if (!o.mlp_pattern)
    return Layer::make<Linear>({.in = in, .out = out, .dtype = o.dtype, .device = o.device});
  BS_CHECK(is_block(o.block) && in % o.block == 0 && out % o.block == 0,
           "transformer: a sparse layer from {} to {} features cannot be cut into blocks of {}", in,
           out, o.block);
  const patterns::Size size{.rows = static_cast<int>(out / o.block),
                            .cols = static_cast<int>(in / o.block),
                            .block = o.block};
  LayoutPtr layout = o.mlp_pattern(size);
  BS_CHECK(layout && layout->height() == out && layout->width() == in,
           "transformer: the pattern does not fit a weight [{}, {}]", out, in);
  return Layer::make<BlockSparseLinear>({.layout = std::move(layout),
                                         .activation = activation,
                                         .dtype = o.dtype,
                                         .device = o.device});
}

int64_t hidden(const TransformerBlockOptions& o) { return o.hidden > 0 ? o.hidden : 4 * o.width; }

}  // namespace

TransformerBlock::TransformerBlock(const Options& o)
    : norm1({.width = o.width, .dtype = o.dtype, .device = o.device}),
      attention({.width = o.width,
                 .heads = o.heads,
                 .block = o.block,
                 .pattern = o.pattern,
                 .causal = o.causal,
                 .dropout = o.dropout,
                 .kv_heads = o.kv_heads,
                 .rope_base = o.rope_base,
                 .query_key_norm = o.query_key_norm,
                 .weight_dropout = o.weight_dropout,
                 .dtype = o.dtype,
                 .device = o.device}),
      norm2({.width = o.width, .dtype = o.dtype, .device = o.device}),
      fc1(projection(o, o.width, hidden(o), Activation::gelu_tanh)),
      fc2(projection(o, hidden(o), o.width)),
      dropout_({.p = o.dropout}),
      activates_itself_(o.mlp_pattern != nullptr || o.mlp_factors > 0) {
  register_module("norm1", norm1);
  register_module("attention", attention);
  register_module("norm2", norm2);
  register_module("fc1", fc1.module());
  register_module("fc2", fc2.module());
  register_module("dropout", dropout_);
}

Variable TransformerBlock::forward(const Variable& h, const Tensor& key_padding_mask) const {
  const Residual y = forward(Residual{h, {}}, key_padding_mask);
  return y.h + y.added;
}

Residual TransformerBlock::forward(const Residual& x, const Tensor& key_padding_mask) const {
  const auto [h, normed] = norm1.forward_sum(x.h, x.added);
  return after_attention(h, attention.forward(normed, key_padding_mask));
}

Residual TransformerBlock::forward(const Residual& x, KVCache& cache) const {
  const auto [h, normed] = norm1.forward_sum(x.h, x.added);
  return after_attention(h, attention.forward(normed, cache));
}

Residual TransformerBlock::after_attention(const Variable& h, const Variable& attended) const {
  const auto [sum, normed] = norm2.forward_sum(h, attended);
  return {sum, dropout_.forward(feed_forward(normed))};
}

Variable TransformerBlock::feed_forward(const Variable& x) const {
  if (activates_itself_) return fc2.forward(fc1.forward(x));
  const auto& first = dynamic_cast<const Linear&>(fc1.module());
  const auto& second = dynamic_cast<const Linear&>(fc2.module());
  return bs::feed_forward(x, first.weight, first.bias, second.weight, second.bias);
}

namespace {
TransformerBlockOptions block_of(const SparseTransformerOptions& o) {
  return {.width = o.width,
          .heads = o.heads,
          .block = o.block,
          .pattern = o.pattern,
          .causal = o.causal,
          .hidden = o.hidden,
          .mlp_pattern = o.mlp_pattern,
          .mlp_factors = o.mlp_factors,
          .dropout = o.dropout,
          .kv_heads = o.kv_heads,
          .rope_base = o.rope_base,
          .query_key_norm = o.query_key_norm,
          .weight_dropout = o.weight_dropout,
          .dtype = o.dtype,
          .device = o.device};
}
}  // namespace

SparseTransformer::SparseTransformer(const Options& o)
    : embedding({.rows = o.vocabulary, .width = o.width, .dtype = o.dtype, .device = o.device}),
      position({.rows = o.rope_base == 0 ? o.context : 1,
                .width = o.width,
                .dtype = o.dtype,
                .device = o.device}),
      norm({.width = o.width, .dtype = o.dtype, .device = o.device}),
      head({.in = o.width,
            .out = o.vocabulary,
            .bias = false,
            .dtype = o.dtype,
            .device = o.device}),
      options_(o),
      dropout_({.p = o.dropout}) {
  BS_CHECK(o.layers > 0 && o.layers <= most_layers, "transformer: {} layers", o.layers);
  register_module("embedding", embedding);
  if (o.rope_base == 0) register_module("position", position);
  for (int i = 0; i < o.layers; ++i) {
    blocks.push_back(std::make_unique<TransformerBlock>(block_of(o)));
    register_module("blocks." + std::to_string(i), *blocks.back());
  }
  register_module("norm", norm);
  register_module("head", head);
  register_module("dropout", dropout_);
  init_weights();
}

namespace {
/// Normal values for a projection's weight; a sparse one's are larger, since fewer are summed.
void init_projection(const Module& projection, double deviation) {
  if (const auto* product = dynamic_cast<const KroneckerLinear*>(&projection))
    return product->init_normal(deviation);
  const auto* sparse = dynamic_cast<const BlockSparseLinear*>(&projection);
  const double density = sparse ? sparse->layout()->density() : 1;
  if (density > 0)
    init::normal(projection.parameters().front().data(), 0, deviation / std::sqrt(density));
}
}  // namespace

void SparseTransformer::init_weights() const {
  constexpr double deviation = 0.02;
  const double residual = deviation / std::sqrt(2.0 * options_.layers);
  for (const auto& [name, parameter] : named_parameters())
    if (name.ends_with("bias")) init::zeros(parameter.data());
  init::normal(embedding.weight.data(), 0, deviation);
  if (options_.rope_base == 0) init::normal(position.weight.data(), 0, deviation);
  for (const auto& block : blocks) {
    init_projection(block->attention.qkv, deviation);
    init_projection(block->attention.out, residual);
    init_projection(block->fc1.module(), deviation);
    init_projection(block->fc2.module(), residual);
  }
  init_projection(head, deviation);
}

Variable SparseTransformer::embed(const Tensor& tokens, int64_t first_place) const {
  BS_CHECK(tokens.rank() == 2, "transformer: tokens {} are not [batch, sequence]", tokens.shape());
  const int64_t end = first_place + tokens.size(1);
  BS_CHECK(end <= options_.context, "transformer: {} tokens for a context of {}", end,
           options_.context);
  const Variable embedded = embedding.forward(tokens);
  if (options_.rope_base > 0) return dropout_.forward(embedded);
  return dropout_.forward(embedded + slice(position.weight, 0, first_place, end));
}

Variable SparseTransformer::forward(const Tensor& tokens, const Tensor& key_padding_mask) const {
  Residual x{embed(tokens, 0), {}};
  for (const auto& block : blocks) x = block->forward(x, key_padding_mask);
  return head.forward(norm.forward_sum(x.h, x.added).norm);
}

Variable SparseTransformer::forward(const Tensor& tokens, std::vector<KVCache>& caches) const {
  BS_CHECK(caches.size() == blocks.size() && !blocks.empty(),
           "transformer: {} caches for {} blocks", caches.size(), blocks.size());
  const NoGrad no_grad;
  Residual x{embed(tokens, caches.front().length()), {}};
  for (size_t i = 0; i < blocks.size(); ++i) x = blocks[i]->forward(x, caches[i]);
  return head.forward(norm.forward_sum(x.h, x.added).norm);
}

std::vector<KVCache> SparseTransformer::make_caches(int64_t batch, int64_t page) const {
  std::vector<KVCache> caches;
  for (const auto& block : blocks)
    caches.push_back(block->attention.make_cache(batch, options_.context, page));
  return caches;
}

Renaming torch_encoder_names() {
  return {{"layers", "blocks"},
          {"self_attn.in_proj_weight", "attention.qkv.weight"},
          {"self_attn.in_proj_bias", "attention.qkv.bias"},
          {"self_attn.out_proj", "attention.out"},
          {"linear1", "fc1"},
          {"linear2", "fc2"}};
}

}  // namespace bs::nn

#include <bs/nn/attention.h>

#include <bs/autograd/sparse_attention.h>

namespace bs::nn {

namespace {
const SparseAttentionOptions& checked(const SparseAttentionOptions& o) {
  BS_CHECK(o.heads > 0 && o.width > 0 && o.width % o.heads == 0,
           "attention: {} heads cannot share a width of {}", o.heads, o.width);
  BS_CHECK(o.pattern != nullptr, "attention: no pattern");
  return o;
}
}  // namespace

SparseAttention::SparseAttention(const Options& options)
    : qkv({.in = checked(options).width,
           .out = 3 * options.width,
           .bias = options.bias,
           .dtype = options.dtype,
           .device = options.device}),
      out({.in = options.width,
           .out = options.width,
           .bias = options.bias,
           .dtype = options.dtype,
           .device = options.device}),
      options_(options),
      dropout_({.p = options.dropout}) {
  register_module("qkv", qkv);
  register_module("out", out);
  register_module("dropout", dropout_);
}

void SparseAttention::check_input(const Variable& x) const {
  BS_CHECK(x.rank() == 3 && x.size(2) == options_.width,
           "attention: x {} is not [batch, sequence, {}]", x.shape(), options_.width);
}

Variable SparseAttention::forward(const Variable& x, const Tensor& key_padding_mask) const {
  check_input(x);
  const bs::SparseAttentionOptions how{.causal = options_.causal,
                                       .key_padding_mask = key_padding_mask};
  const Variable joined =
      sparse_attention_qkv(qkv.forward(x), options_.heads, layout(x.size(1)), how);
  return dropout_.forward(out.forward(joined));
}

Variable SparseAttention::forward(const Variable& x, KVCache& cache) const {
  check_input(x);
  BS_CHECK(options_.causal, "attention: a cache is for causal attention");
  const NoGrad no_grad;
  const int64_t batch = x.size(0), tokens = x.size(1), width = options_.width;
  const Tensor parts = qkv.forward(x).data().view({batch, tokens, 3, options_.heads, -1});
  const auto heads = [&](int64_t i) { return parts.select(2, i).permute({0, 2, 1, 3}); };
  bs::SparseAttentionOptions how{.causal = true};
  how.first_query = cache.length();
  cache.append(heads(1), heads(2));
  const Tensor joined =
      bs::sparse_attention(heads(0), cache.keys(), cache.values(), layout(cache.capacity()), how)
          .out.permute({0, 2, 1, 3});
  return dropout_.forward(out.forward(joined.view({batch, tokens, width})));
}

KVCache SparseAttention::make_cache(int64_t batch, int64_t capacity, int64_t page) const {
  return KVCache({.batch = batch,
                  .heads = options_.heads,
                  .capacity = capacity,
                  .head_dim = options_.width / options_.heads,
                  .page = page,
                  .dtype = out.weight.dtype(),
                  .device = out.weight.device()});
}

LayoutPtr SparseAttention::layout(int64_t sequence) const {
  const int blocks = static_cast<int>((sequence + options_.block - 1) / options_.block);
  return *layouts_.get<LayoutPtr>(blocks, [&] {
    LayoutPtr made = options_.pattern(
        {.heads = options_.heads, .rows = blocks, .cols = blocks, .block = options_.block});
    const bool fits = made && made->block() == options_.block && made->rows() == blocks &&
                      made->cols() == blocks &&
                      (made->heads() == 1 || made->heads() == options_.heads);
    BS_CHECK(fits, "attention: the pattern does not fit {} heads and {} blocks of {} each way",
             options_.heads, blocks, options_.block);
    return made;
  });
}

}  // namespace bs::nn

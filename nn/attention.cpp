#include <bs/nn/attention.h>

#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/view.h>
#include <bs/lib/integers.h>

namespace bs::nn {

namespace {
const SparseAttentionOptions& checked(const SparseAttentionOptions& o) {
  BS_CHECK(o.heads > 0 && is_extent(o.width) && o.width % o.heads == 0,
           "attention: {} heads cannot share a width of {}", o.heads, o.width);
  BS_CHECK(is_block(o.block), "attention: block {} is none of 8, 16, 32, 64 and 128", o.block);
  BS_CHECK(o.pattern != nullptr, "attention: no pattern");
  BS_CHECK(o.kv_heads >= 0 && (o.kv_heads == 0 || o.heads % o.kv_heads == 0),
           "attention: {} heads of keys do not divide {} heads", o.kv_heads, o.heads);
  BS_CHECK(o.rope_base == 0 || o.width / o.heads % 2 == 0,
           "attention: a head_dim of {} has no pairs to turn", o.width / o.heads);
  BS_CHECK(o.weight_dropout >= 0 && o.weight_dropout < 1,
           "attention: weight_dropout {} is outside [0, 1)", o.weight_dropout);
  return o;
}

int64_t kv_heads(const SparseAttentionOptions& o) { return o.kv_heads > 0 ? o.kv_heads : o.heads; }
}  // namespace

SparseAttention::SparseAttention(const Options& options)
    : qkv({.in = checked(options).width,
           .out = options.width + 2 * kv_heads(options) * (options.width / options.heads),
           .bias = options.bias,
           .dtype = options.dtype,
           .device = options.device}),
      out({.in = options.width,
           .out = options.width,
           .bias = options.bias,
           .dtype = options.dtype,
           .device = options.device}),
      options_(options),
      head_dim_(options.width / options.heads),
      kv_heads_(kv_heads(options)),
      dropout_({.p = options.dropout}) {
  register_module("qkv", qkv);
  register_module("out", out);
  register_module("dropout", dropout_);
  if (!options.query_key_norm) return;
  const RMSNormOptions norm{.width = head_dim_, .dtype = options.dtype, .device = options.device};
  register_module("q_norm", q_norm_.emplace(norm));
  register_module("k_norm", k_norm_.emplace(norm));
}

void SparseAttention::check_input(const Variable& x) const {
  BS_CHECK(x.rank() == 3 && x.size(2) == options_.width,
           "attention: x {} is not [batch, sequence, {}]", x.shape(), options_.width);
}

detail::AttentionHeads SparseAttention::project(const Variable& x, int64_t first_place) const {
  const int64_t k_begin = options_.width, v_begin = k_begin + kv_heads_ * head_dim_;
  const Variable all = qkv.forward(x);
  const auto part = [&](int64_t begin, int64_t end) {
    return detail::split_heads(slice(all, 2, begin, end), head_dim_);
  };
  detail::AttentionHeads heads{part(0, k_begin), part(k_begin, v_begin),
                               part(v_begin, all.size(2))};
  if (q_norm_) {
    heads.q = q_norm_->forward(heads.q);
    heads.k = k_norm_->forward(heads.k);
  }
  if (options_.rope_base != 0) detail::turn(heads, options_.rope_base, first_place);
  return heads;
}

bs::SparseAttentionOptions SparseAttention::scores() const {
  bs::SparseAttentionOptions how{.causal = options_.causal};
  if (training() && options_.weight_dropout > 0) {
    how.dropout = options_.weight_dropout;
    how.random = default_generator().next();
  }
  return how;
}

Variable SparseAttention::forward(const Variable& x, const Tensor& key_padding_mask) const {
  check_input(x);
  bs::SparseAttentionOptions how = scores();
  how.key_padding_mask = key_padding_mask;
  const LayoutPtr blocks = layout(x.size(1));
  if (kv_heads_ == options_.heads && !q_norm_ && options_.rope_base == 0) {  // nothing is copied
    const Variable joined = sparse_attention_qkv(qkv.forward(x), options_.heads, blocks, how);
    return dropout_.forward(out.forward(joined));
  }
  const detail::AttentionHeads heads = project(x, 0);
  const Variable joined =
      detail::join_heads(sparse_attention(heads.q, heads.k, heads.v, blocks, how));
  return dropout_.forward(out.forward(joined));
}

Variable SparseAttention::forward(const Variable& x, KVCache& cache) const {
  check_input(x);
  BS_CHECK(options_.causal, "attention: a cache is for causal attention");
  const NoGrad no_grad;
  bs::SparseAttentionOptions how = scores();
  how.first_query = cache.length();
  const detail::AttentionHeads heads = project(x, cache.dropped() + cache.length());
  cache.append(heads.k.data(), heads.v.data());
  const Variable joined =
      detail::join_heads(cached_attention(heads.q.data(), cache, layout(cache.capacity()), how));
  return dropout_.forward(out.forward(joined));
}

KVCache SparseAttention::make_cache(int64_t batch, int64_t capacity, int64_t page) const {
  return KVCache({.batch = batch,
                  .heads = kv_heads_,
                  .capacity = capacity,
                  .head_dim = head_dim_,
                  .page = page,
                  .dtype = out.weight.dtype(),
                  .device = out.weight.device()});
}

LayoutPtr SparseAttention::layout(int64_t sequence) const {
  BS_CHECK(layouts_ != nullptr, "attention: the layer was moved away");
  const int blocks = static_cast<int>(ceil_div(sequence, options_.block));
  return *layouts_->get<LayoutPtr>(blocks, [&] {
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

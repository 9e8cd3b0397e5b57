#include <bs/nn/multihead_attention.h>

#include <bs/autograd/linear.h>
#include <bs/autograd/rope.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>
#include <bs/nn/init.h>

namespace bs::nn {

namespace {

using Options = MultiheadAttentionOptions;

const Options& checked(const Options& o) {
  const int kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads;
  BS_CHECK(o.heads > 0 && o.width > 0 && o.width % o.heads == 0,
           "multihead_attention: {} heads cannot share a width of {}", o.heads, o.width);
  BS_CHECK(o.kv_heads >= 0 && o.heads % kv_heads == 0,
           "multihead_attention: {} heads of keys do not divide {} heads", o.kv_heads, o.heads);
  BS_CHECK(o.key_width >= 0 && o.value_width >= 0,
           "multihead_attention: keys of {} and values of {} features", o.key_width, o.value_width);
  BS_CHECK(o.rope_base == 0 || o.width / o.heads % 2 == 0,
           "multihead_attention: a head_dim of {} has no pairs to turn", o.width / o.heads);
  return o;
}

/// [batch, sequence, heads * head_dim] as [batch, heads, sequence, head_dim].
Variable split_heads(const Variable& x, int64_t head_dim) {
  const Variable split = view(x, {x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
  return permute(split, {0, 2, 1, 3});
}

/// Rows [begin, end) of a bias that may be absent.
Variable part(const Variable& bias, int64_t begin, int64_t end) {
  return bias.defined() ? slice(bias, 0, begin, end) : Variable();
}

}  // namespace

MultiheadAttention::MultiheadAttention(const Options& options)
    : out_proj({.in = checked(options).width,
                .out = options.width,
                .bias = options.bias,
                .dtype = options.dtype,
                .device = options.device}),
      options_(options),
      head_dim_(options.width / options.heads),
      kv_heads_(options.kv_heads > 0 ? options.kv_heads : options.heads) {
  Options& o = options_;
  if (o.key_width == 0) o.key_width = o.width;
  if (o.value_width == 0) o.value_width = o.width;
  const int64_t kv_width = kv_heads_ * head_dim_;
  const auto make = [&](const char* name, int64_t out, int64_t in) {
    Tensor weight = Tensor::empty({out, in}, o.dtype, o.device);
    init::xavier_uniform(weight);
    return register_parameter(name, weight);
  };
  if (o.key_width == o.width && o.value_width == o.width && kv_width == o.width) {
    in_proj_weight = make("in_proj_weight", 3 * o.width, o.width);
  } else {
    q_proj_weight = make("q_proj_weight", o.width, o.width);
    k_proj_weight = make("k_proj_weight", kv_width, o.key_width);
    v_proj_weight = make("v_proj_weight", kv_width, o.value_width);
  }
  in_proj_bias = register_parameter(
      "in_proj_bias", o.bias ? zeros({o.width + 2 * kv_width}, o.dtype, o.device) : Tensor());
  register_module("out_proj", out_proj);
  if (o.bias) init::zeros(out_proj.bias.data());
  if (!o.query_key_norm) return;
  const RMSNormOptions norm{.width = head_dim_, .dtype = o.dtype, .device = o.device};
  register_module("q_norm", q_norm_.emplace(norm));
  register_module("k_norm", k_norm_.emplace(norm));
}

MultiheadAttention::Heads MultiheadAttention::project(const Variable& query, const Variable& key,
                                                      const Variable& value,
                                                      int64_t first_place) const {
  const Options& o = options_;
  const int64_t w = o.width, kv = kv_heads_ * head_dim_;
  Variable q, k, v;
  if (in_proj_weight.defined() && query.is_same(key) && key.is_same(value)) {
    const Variable all = linear(query, in_proj_weight, in_proj_bias);
    q = slice(all, 2, 0, w);
    k = slice(all, 2, w, 2 * w);
    v = slice(all, 2, 2 * w, 3 * w);
  } else {
    const bool packed = in_proj_weight.defined();
    const auto weight = [&](const Variable& own, int64_t i) {
      return packed ? slice(in_proj_weight, 0, i * w, (i + 1) * w) : own;
    };
    q = linear(query, weight(q_proj_weight, 0), part(in_proj_bias, 0, w));
    k = linear(key, weight(k_proj_weight, 1), part(in_proj_bias, w, w + kv));
    v = linear(value, weight(v_proj_weight, 2), part(in_proj_bias, w + kv, w + 2 * kv));
  }
  Heads heads{split_heads(q, head_dim_), split_heads(k, head_dim_), split_heads(v, head_dim_)};
  if (q_norm_) {
    heads.q = q_norm_->forward(heads.q);
    heads.k = k_norm_->forward(heads.k);
  }
  if (o.rope_base == 0) return heads;
  const DType dtype = o.dtype == f64 ? f64 : f32;
  const auto turned = [&](const Variable& x) {
    return rope(x, rope_table(x.size(2), head_dim_, o.rope_base, first_place, dtype, x.device()));
  };
  heads.q = turned(heads.q);
  heads.k = turned(heads.k);
  return heads;
}

Variable MultiheadAttention::attend(const Heads& heads, const LayoutPtr& layout,
                                    bs::SparseAttentionOptions options) const {
  options.causal = options_.causal;
  options.window_before = options_.window_before;
  options.softcap = options_.softcap;
  if (training() && options_.dropout > 0) {
    Generator& generator = options_.generator ? *options_.generator : default_generator();
    options.dropout = options_.dropout;
    options.random = generator.next();
  }
  const Variable out = sparse_attention(heads.q, heads.k, heads.v, layout, options);
  const Variable rows = permute(out, {0, 2, 1, 3});
  return out_proj.forward(view(rows, {rows.size(0), rows.size(1), options_.width}));
}

Variable MultiheadAttention::forward(const Variable& query, const Variable& key,
                                     const Variable& value,
                                     const MultiheadAttentionMasks& masks) const {
  const Options& o = options_;
  const auto check = [](const char* name, const Variable& x, int64_t width) {
    BS_CHECK(x.rank() == 3 && x.size(2) == width,
             "multihead_attention: {} {} is not [batch, sequence, {}]", name, x.shape(), width);
  };
  check("query", query, o.width);
  check("key", key, o.key_width);
  check("value", value, o.value_width);
  bs::SparseAttentionOptions options{.key_padding_mask = masks.key_padding_mask};
  if (const Tensor& mask = masks.attention_mask; mask.defined()) {
    const Tensor all = mask.rank() == 2 ? mask.unsqueeze(0).unsqueeze(0) : mask;
    (mask.dtype() == boolean ? options.mask : options.bias) = all;
  }
  return attend(project(query, key, value, 0), layout(query.size(1), key.size(1)), options);
}

Variable MultiheadAttention::forward(const Variable& x,
                                     const MultiheadAttentionMasks& masks) const {
  return forward(x, x, x, masks);
}

Variable MultiheadAttention::forward(const Variable& x, KVCache& cache) const {
  BS_CHECK(options_.causal, "multihead_attention: a cache is for causal attention");
  BS_CHECK(x.rank() == 3 && x.size(2) == options_.width,
           "multihead_attention: x {} is not [batch, sequence, {}]", x.shape(), options_.width);
  const NoGrad no_grad;
  const int64_t place = cache.length();
  Heads heads = project(x, x, x, place);
  cache.append(heads.k.data(), heads.v.data());
  heads.k = cache.keys();
  heads.v = cache.values();
  bs::SparseAttentionOptions options;
  options.first_query = place;
  return attend(heads, layout(cache.capacity(), cache.capacity()), options);
}

KVCache MultiheadAttention::make_cache(int64_t batch, int64_t capacity, int64_t page) const {
  return KVCache({.batch = batch,
                  .heads = kv_heads_,
                  .capacity = capacity,
                  .head_dim = head_dim_,
                  .page = page,
                  .dtype = out_proj.weight.dtype(),
                  .device = out_proj.weight.device()});
}

LayoutPtr MultiheadAttention::layout(int64_t queries, int64_t keys) const {
  const int block = options_.block;
  const auto blocks = [block](int64_t n) { return static_cast<int>((n + block - 1) / block); };
  const std::pair of(blocks(queries), blocks(keys));
  return *layouts_.get<LayoutPtr>(of, [&] {
    patterns::Size size{.rows = blocks(queries), .cols = blocks(keys), .block = block};
    if (options_.pattern) size.heads = options_.heads;
    LayoutPtr made = options_.pattern ? options_.pattern(size) : patterns::dense(size);
    const bool fits = made && made->block() == block && made->rows() == size.rows &&
                      made->cols() == size.cols &&
                      (made->heads() == 1 || made->heads() == options_.heads);
    BS_CHECK(fits, "multihead_attention: the pattern does not fit {} heads of {} x {} blocks of {}",
             options_.heads, size.rows, size.cols, block);
    return made;
  });
}

}  // namespace bs::nn

#include <bs/nn/multihead_attention.h>

#include <bs/autograd/linear.h>
#include <bs/autograd/sparse_attention.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>
#include <bs/lib/integers.h>
#include <bs/nn/init.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace bs::nn {

namespace {

using Options = MultiheadAttentionOptions;

const Options& checked(const Options& o) {
  const int kv_heads = o.kv_heads > 0 ? o.kv_heads : o.heads;
  BS_CHECK(o.heads > 0 && is_extent(o.width) && o.width % o.heads == 0,
           "multihead_attention: {} heads cannot share a width of {}", o.heads, o.width);
  BS_CHECK(is_block(o.block), "multihead_attention: block {} is none of 8, 16, 32, 64 and 128",
           o.block);
  BS_CHECK(o.kv_heads >= 0 && o.heads % kv_heads == 0,
           "multihead_attention: {} heads of keys do not divide {} heads", o.kv_heads, o.heads);
  BS_CHECK(o.key_width >= 0 && o.key_width <= most_features && o.value_width >= 0 &&
               o.value_width <= most_features,
           "multihead_attention: keys of {} and values of {} features", o.key_width, o.value_width);
  BS_CHECK(o.value_dim >= 0 && o.value_dim <= most_features && o.relative_reach >= 0 &&
               o.relative_reach <= most_features,
           "multihead_attention: value_dim {}, relative_reach {}", o.value_dim, o.relative_reach);
  BS_CHECK(o.rope_base == 0 || o.width / o.heads % 2 == 0,
           "multihead_attention: a head_dim of {} has no pairs to turn", o.width / o.heads);
  return o;
}

/// Rows [begin, end) of a bias that may be absent.
Variable part(const Variable& bias, int64_t begin, int64_t end) {
  return bias.defined() ? slice(bias, 0, begin, end) : Variable();
}

int64_t value_dim(const Options& o) { return o.value_dim > 0 ? o.value_dim : o.width / o.heads; }

void check_starts(const char* name, const std::vector<int64_t>& starts, int64_t total) {
  BS_CHECK(!starts.empty() && starts.front() == 0 && starts.back() == total &&
               std::is_sorted(starts.begin(), starts.end()),
           "multihead_attention: {} do not ascend from 0 to {}", name, total);
}

int64_t longest(const std::vector<int64_t>& starts) {
  int64_t most = 0;
  for (size_t i = 1; i < starts.size(); ++i) most = std::max(most, starts[i] - starts[i - 1]);
  return most;
}

}  // namespace

Tensor alibi_slopes(int heads) {
  BS_CHECK(heads > 0 && heads <= 1 << 16, "alibi_slopes: {} heads", heads);
  std::vector<float> slopes;
  const auto add = [&](int of, int step) {
    for (int i = 1; i <= of && slopes.size() < static_cast<size_t>(heads); i += step)
      slopes.push_back(static_cast<float>(std::exp2(-8.0 * i / of)));
  };
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  add(power, 1);
  add(2 * power, 2);
  return Tensor::from(std::span<const float>(slopes), {heads});
}

MultiheadAttention::MultiheadAttention(const Options& options)
    : out_proj({.in = value_dim(checked(options)) * options.heads,
                .out = options.width,
                .bias = options.bias,
                .dtype = options.dtype,
                .device = options.device}),
      options_(options),
      head_dim_(options.width / options.heads),
      value_dim_(value_dim(options)),
      kv_heads_(options.kv_heads > 0 ? options.kv_heads : options.heads) {
  Options& o = options_;
  if (o.key_width == 0) o.key_width = o.width;
  if (o.value_width == 0) o.value_width = o.width;
  const int64_t key_out = kv_heads_ * head_dim_, value_out = kv_heads_ * value_dim_;
  const auto make = [&](const char* name, Variable& member, int64_t out, int64_t in) {
    Tensor weight = Tensor::empty({out, in}, o.dtype, o.device);
    init::xavier_uniform(weight);
    register_parameter(name, member, weight);
  };
  if (o.key_width == o.width && o.value_width == o.width && key_out == o.width &&
      value_out == o.width) {
    make("in_proj_weight", in_proj_weight, 3 * o.width, o.width);
  } else {
    make("q_proj_weight", q_proj_weight, o.width, o.width);
    make("k_proj_weight", k_proj_weight, key_out, o.key_width);
    make("v_proj_weight", v_proj_weight, value_out, o.value_width);
  }
  register_parameter("in_proj_bias", in_proj_bias,
                     o.bias ? zeros({o.width + key_out + value_out}, o.dtype, o.device) : Tensor());
  register_module("out_proj", out_proj);
  if (o.bias) init::zeros(out_proj.bias.data());
  register_scores();
}

/// What options add to the parameters of PyTorch.
void MultiheadAttention::register_scores() {
  const Options& o = options_;
  const auto none = [&](bool wanted, const Shape& shape) {
    return wanted ? zeros(shape, o.dtype, o.device) : Tensor();
  };
  relative_bias = register_parameter(
      "relative_bias", none(o.relative_reach > 0, {o.heads, 2 * o.relative_reach + 1}));
  sinks = register_parameter("sinks", none(o.sinks, {o.heads}));
  slopes = register_buffer("alibi_slopes", o.alibi ? alibi_slopes(o.heads).to(o.device) : Tensor(),
                           BufferDType::at_least_f32);
  if (!o.query_key_norm) return;
  const RMSNormOptions norm{.width = head_dim_, .dtype = o.dtype, .device = o.device};
  register_module("q_norm", q_norm_.emplace(norm));
  register_module("k_norm", k_norm_.emplace(norm));
}

MultiheadAttention::Heads MultiheadAttention::project(const Variable& query, const Variable& key,
                                                      const Variable& value) const {
  const int64_t w = options_.width, k_end = w + kv_heads_ * head_dim_;
  const int64_t v_end = k_end + kv_heads_ * value_dim_;
  Variable q, k, v;
  if (in_proj_weight.defined() && query.is_same(key) && key.is_same(value)) {
    const Variable all = linear(query, in_proj_weight, in_proj_bias);
    q = slice(all, 2, 0, w);
    k = slice(all, 2, w, k_end);
    v = slice(all, 2, k_end, v_end);
  } else {
    const bool packed = in_proj_weight.defined();
    const auto weight = [&](const Variable& own, int64_t i) {
      return packed ? slice(in_proj_weight, 0, i * w, (i + 1) * w) : own;
    };
    q = linear(query, weight(q_proj_weight, 0), part(in_proj_bias, 0, w));
    k = linear(key, weight(k_proj_weight, 1), part(in_proj_bias, w, k_end));
    v = linear(value, weight(v_proj_weight, 2), part(in_proj_bias, k_end, v_end));
  }
  return {detail::split_heads(q, head_dim_), detail::split_heads(k, head_dim_),
          detail::split_heads(v, value_dim_)};
}

MultiheadAttention::Heads MultiheadAttention::placed(Heads heads, int64_t first_place,
                                                     const MultiheadAttentionMasks& masks) const {
  if (q_norm_) {
    heads.q = q_norm_->forward(heads.q);
    heads.k = k_norm_->forward(heads.k);
  }
  if (options_.rope_base != 0)
    detail::turn(heads, options_.rope_base, first_place, masks.query_starts,
                 masks.key_starts.empty() ? masks.query_starts : masks.key_starts);
  return heads;
}

void MultiheadAttention::set_scores(bs::SparseAttentionOptions& options) const {
  const Options& o = options_;
  options.causal = o.causal;
  options.offset = o.offset;
  options.window_before = o.window_before;
  options.window_after = o.window_after;
  options.scale = o.scale;
  options.softcap = o.softcap;
  if (slopes.defined()) options.alibi_slopes = slopes.data();
  if (training() && o.dropout > 0) {
    Generator& generator = o.generator ? *o.generator : default_generator();
    options.dropout = o.dropout;
    options.random = generator.next();
  }
}

Variable MultiheadAttention::attend(const Heads& heads, const LayoutPtr& layout,
                                    bs::SparseAttentionOptions options,
                                    const Variable& bias) const {
  set_scores(options);
  return out_proj.forward(detail::join_heads(
      sparse_attention(heads.q, heads.k, heads.v, layout, options,
                       {.bias = bias, .relative_bias = relative_bias, .sinks = sinks})));
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
  bs::SparseAttentionOptions options{.key_padding_mask = masks.key_padding_mask,
                                     .packed_mask = masks.packed_mask};
  Variable bias;
  if (const Variable& mask = masks.attention_mask; mask.defined()) {
    const Variable all = mask.rank() == 2 ? unsqueeze(unsqueeze(mask, 0), 0) : mask;
    if (mask.dtype() == boolean)
      options.mask = all.data();
    else
      bias = all;
  }
  Heads heads = project(query, key, value);
  if (masks.query_starts.empty() && masks.key_starts.empty())
    return attend(placed(std::move(heads), 0, masks), layout_of(masks, query.size(1), key.size(1)),
                  options, bias);
  options.query_starts = masks.query_starts;
  options.key_starts = masks.key_starts.empty() ? masks.query_starts : masks.key_starts;
  check_starts("query_starts", options.query_starts, query.size(1));
  check_starts("key_starts", options.key_starts, key.size(1));
  const LayoutPtr of_longest =
      layout_of(masks, longest(options.query_starts), longest(options.key_starts));
  return attend(placed(std::move(heads), 0, masks), of_longest, options, bias);
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
  const Heads heads = placed(project(x, x, x), cache.dropped() + place, {});
  cache.append(heads.k.data(), heads.v.data());
  bs::SparseAttentionOptions options;
  set_scores(options);
  options.first_query = place;
  if (relative_bias.defined()) options.relative_bias = relative_bias.data();
  if (sinks.defined()) options.sinks = sinks.data();
  return out_proj.forward(detail::join_heads(cached_attention(
      heads.q.data(), cache, layout(cache.capacity(), cache.capacity()), options)));
}

KVCache MultiheadAttention::make_cache(int64_t batch, int64_t capacity, int64_t page) const {
  return KVCache({.batch = batch,
                  .heads = kv_heads_,
                  .capacity = capacity,
                  .head_dim = head_dim_,
                  .value_dim = value_dim_,
                  .page = page,
                  .dtype = out_proj.weight.dtype(),
                  .device = out_proj.weight.device()});
}

LayoutPtr MultiheadAttention::layout_of(const MultiheadAttentionMasks& masks, int64_t queries,
                                        int64_t keys) const {
  if (masks.layout) return masks.layout;
  const bool packed = masks.packed_mask.defined() && !options_.pattern;
  return packed ? masks.packed_mask.layout() : layout(queries, keys);
}

LayoutPtr MultiheadAttention::layout(int64_t queries, int64_t keys) const {
  BS_CHECK(layouts_ != nullptr, "multihead_attention: the layer was moved away");
  const int block = options_.block;
  const auto blocks = [block](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
  const std::pair of(blocks(queries), blocks(keys));
  return *layouts_->get<LayoutPtr>(of, [&] {
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

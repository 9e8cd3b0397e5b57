// Options of attention layers against naive loops in double: projections, norms, places, scores.
#include <bs/autograd/grad_check.h>
#include <bs/kernels/fill.h>
#include <bs/nn/encoder_decoder.h>
#include <bs/nn/multihead_attention.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int64_t width = 32;
constexpr double base = 100;

using Row = std::vector<double>;

/// Rows [first, first + out) of a weight [.., in] times x, and the bias.
Row projected(const Reference& weight, const Reference& bias, int64_t first, int64_t out,
              const double* x) {
  Row y(static_cast<size_t>(out));
  for (int64_t o = 0; o < out; ++o) {
    y[static_cast<size_t>(o)] = bias[static_cast<size_t>(first + o)];
    for (int64_t i = 0; i < width; ++i) y[static_cast<size_t>(o)] += weight.at({o, i}) * x[i];
  }
  return y;
}

Row head_of(const Row& row, int64_t head, int64_t dim) {
  return {row.begin() + head * dim, row.begin() + (head + 1) * dim};
}

/// RMS norm with its default eps.
void norm(Row& x, const Reference& weight) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= factor * weight[i];
}

void turn(Row& x, int64_t place) {
  const size_t half = x.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(place) *
                         std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
    const double a = x[i], b = x[half + i];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[half + i] = b * std::cos(angle) + a * std::sin(angle);
  }
}

/// What a layer's parameters are, by name.
Reference parameter(const nn::Module& module, const std::string& name) {
  for (const auto& p : module.named_parameters())
    if (p.name == name) return Reference::of(p.variable.data());
  FAIL("no parameter " << name);
  return Reference();
}

/// Every parameter far from its quiet start.
void shout(const nn::Module& module) {
  uint64_t seed = 1;
  for (const Variable& p : module.parameters())
    p.set_data(random_reference(p.shape(), ++seed).tensor(p.dtype(), test_device()));
}

/// Self-attention of one sequence [sequence, width] of a layer with biases, keys and values apart.
Reference naive(const nn::MultiheadAttention& layer, const Reference& x, const Reference& bias) {
  const auto& o = layer.options();
  const int64_t n = x.shape[0], dim = width / o.heads, group = o.heads / o.kv_heads;
  const Reference wq = parameter(layer, "q_proj_weight"), wk = parameter(layer, "k_proj_weight");
  const Reference wv = parameter(layer, "v_proj_weight"), b = parameter(layer, "in_proj_bias");
  const Reference wo = parameter(layer, "out_proj.weight"), bo = parameter(layer, "out_proj.bias");
  const Reference table = parameter(layer, "relative_bias"), sinks = parameter(layer, "sinks");
  const Reference qn = parameter(layer, "q_norm.weight"), kn = parameter(layer, "k_norm.weight");
  const int64_t kv = o.kv_heads * dim;
  const auto heads = [&](int64_t i, int64_t h) {
    const double* row = &x.values[static_cast<size_t>(i * width)];
    Row q = head_of(projected(wq, b, 0, width, row), h, dim);
    Row k = head_of(projected(wk, b, width, kv, row), h / group, dim);
    Row v = head_of(projected(wv, b, width + kv, o.kv_heads * o.value_dim, row), h / group,
                    o.value_dim);
    norm(q, qn);
    norm(k, kn);
    turn(q, i);
    turn(k, i);
    return std::array{q, k, v};
  };
  Reference joined({n, o.heads * o.value_dim}), y({n, width});
  for (int64_t h = 0; h < o.heads; ++h)
    for (int64_t i = 0; i < n; ++i) {
      const Row q = heads(i, h)[0];
      double sum = std::exp(sinks[static_cast<size_t>(h)]);
      Row mean(static_cast<size_t>(o.value_dim));
      for (int64_t j = 0; j < n; ++j) {
        const int64_t d = j - i - o.offset;
        if ((o.causal && d > 0) || d < -*o.window_before || d > *o.window_after) continue;
        const auto [unused, k, v] = heads(j, h);
        double score = 0;
        for (size_t c = 0; c < q.size(); ++c) score += q[c] * k[c];
        score = o.softcap * std::tanh(score * o.scale / o.softcap);
        const int64_t reach = o.relative_reach;
        score += table.at({h, reach + std::clamp(d, -reach, reach)}) + bias.at({i, j}) -
                 std::exp2(-8.0 * static_cast<double>(h + 1) / o.heads) *
                     static_cast<double>(std::abs(d));
        sum += std::exp(score);
        for (size_t c = 0; c < mean.size(); ++c) mean[c] += std::exp(score) * v[c];
      }
      for (size_t c = 0; c < mean.size(); ++c)
        joined.at({i, h * o.value_dim + static_cast<int64_t>(c)}) = mean[c] / sum;
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t e = 0; e < width; ++e) {
      y.at({i, e}) = bo[static_cast<size_t>(e)];
      for (int64_t c = 0; c < joined.shape[1]; ++c)
        y.at({i, e}) += wo.at({e, c}) * joined.at({i, c});
    }
  return y;
}

nn::MultiheadAttentionOptions everything() {
  return {.width = width,
          .heads = 4,
          .kv_heads = 2,
          .value_dim = 16,
          .block = 8,
          .causal = true,
          .offset = 2,
          .window_before = 7,
          .window_after = 1,
          .scale = .4,
          .softcap = 3,
          .alibi = true,
          .relative_reach = 3,
          .sinks = true,
          .rope_base = base,
          .query_key_norm = true,
          .dtype = f64,
          .device = test_device()};
}

}  // namespace

TEST_CASE("nn::MultiheadAttention: all options as in naive loops") {
  for (const bool causal : {true, false}) {
    nn::MultiheadAttentionOptions o = everything();
    o.causal = causal;
    o.offset = causal ? 2 : -1;
    const nn::MultiheadAttention layer(o);
    shout(layer);
    const Reference x = random_reference({1, 19, width}, 30), bias = random_reference({19, 19}, 31);
    Reference one({19, width});
    one.values = x.values;
    const Variable y = layer.forward(Variable(x.tensor(f64, test_device())),
                                     {.attention_mask = bias.tensor(f64, test_device())});
    Reference expected({1, 19, width});
    expected.values = naive(layer, one, bias).values;
    check_close("options", Reference::of(y.data()), expected, 1e-12 * largest(expected));
  }
}

TEST_CASE("nn::MultiheadAttention: ragged sequences are those sequences by themselves") {
  const nn::MultiheadAttention layer(everything());
  shout(layer);
  const std::vector<int64_t> starts{0, 9, 9, 12, 31};
  const Tensor x = random_reference({1, 31, width}, 30).tensor(f64, test_device());
  const Reference y = Reference::of(layer.forward(Variable(x), {.query_starts = starts}).data());
  for (size_t s = 1; s < starts.size(); ++s) {
    const int64_t begin = starts[s - 1], end = starts[s];
    if (begin == end) continue;
    const Reference part = Reference::of(layer.forward(Variable(x.slice(1, begin, end))).data());
    double worst = 0;
    for (int64_t i = begin; i < end; ++i)
      for (int64_t e = 0; e < width; ++e)
        worst = std::max(worst, std::abs(y.at({0, i, e}) - part.at({0, i - begin, e})));
    CHECK(worst <= 1e-12 * largest(y));
  }
  CHECK_THROWS_WITH_AS(layer.forward(Variable(x), {.query_starts = {0, 40, 31}}),
                       "multihead_attention: query_starts do not ascend from 0 to 31", Error);
}

TEST_CASE("nn::MultiheadAttention: what is learnt of scores has gradients") {
  nn::MultiheadAttention layer(everything());
  shout(layer);
  const Variable x(random_reference({2, 11, width}, 30).tensor(f64, test_device()));
  const Variable mask(random_reference({2, 1, 11, 11}, 31).tensor(f64, test_device()), true);
  gradcheck(
      [&](const std::vector<Variable>& v) {
        layer.relative_bias = v[1];
        layer.sinks = v[2];
        return layer.forward(x, {.attention_mask = v[0]});
      },
      {mask, layer.relative_bias, layer.sinks});
}

TEST_CASE("nn::MultiheadAttention: options with a cache") {
  nn::MultiheadAttentionOptions o = everything();
  o.offset = 0;
  nn::MultiheadAttention layer(o);
  shout(layer);
  layer.eval();
  const Tensor x = random_reference({2, 21, width}, 1).tensor(f64, test_device());
  const Reference all = Reference::of(layer.forward(Variable(x)).data());
  nn::KVCache cache = layer.make_cache(2, 21, 4);
  int64_t at = 0;
  for (const int64_t tokens : {6, 1, 1, 9, 4}) {
    const Reference part =
        Reference::of(layer.forward(Variable(x.slice(1, at, at + tokens)), cache).data());
    double worst = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < tokens; ++i)
        for (int64_t e = 0; e < width; ++e)
          worst = std::max(worst, std::abs(part.at({b, i, e}) - all.at({b, at + i, e})));
    CHECK(worst <= 1e-12 * largest(all));
    at += tokens;
  }
}

TEST_CASE("nn::MultiheadAttention: parameters of its options") {
  const nn::MultiheadAttention layer(everything());
  std::string all;
  for (const auto& [name, p] : layer.named_parameters()) all += name + to_string(p.shape()) + " ";
  CHECK(all ==
        "q_proj_weight[32, 32] k_proj_weight[16, 32] v_proj_weight[32, 32] in_proj_bias[80] "
        "relative_bias[4, 7] sinks[4] out_proj.weight[32, 64] out_proj.bias[32] q_norm.weight[8] "
        "k_norm.weight[8] ");
  CHECK(layer.named_buffers().size() == 1);
  CHECK(nn::MultiheadAttention({.width = 8}).named_buffers().empty());
}

TEST_CASE("nn::MultiheadAttention: slopes stay what they are in a layer that becomes bf16") {
  nn::MultiheadAttention layer({.width = 192, .heads = 12, .alibi = true, .device = test_device()});
  layer.to(bf16);
  CHECK(layer.in_proj_weight.dtype() == bf16);
  CHECK(layer.slopes.dtype() == f32);
  CHECK(Reference::of(layer.slopes.data()).values == Reference::of(nn::alibi_slopes(12)).values);
  CHECK(layer.forward(zeros({1, 32, 192}, bf16, test_device())).dtype() == bf16);
}

TEST_CASE("alibi_slopes are those of the paper") {
  const auto check = [](int heads, const std::vector<double>& exponents) {
    const Reference slopes = Reference::of(nn::alibi_slopes(heads));
    REQUIRE(slopes.values.size() == exponents.size());
    for (size_t h = 0; h < exponents.size(); ++h)
      CHECK(slopes[h] == doctest::Approx(std::exp2(-exponents[h])));
  };
  check(8, {1, 2, 3, 4, 5, 6, 7, 8});
  check(1, {8});
  check(12, {1, 2, 3, 4, 5, 6, 7, 8, .5, 1.5, 2.5, 3.5});
}

TEST_CASE("nn::SparseAttention: options give what nn::MultiheadAttention gives for them") {
  const nn::Pattern pattern = [](const patterns::Size& size) {
    return patterns::sliding_window(size, {.window_blocks = std::min(3, size.rows)});
  };
  nn::SparseAttention layer({.width = width,
                             .heads = 4,
                             .block = 8,
                             .pattern = pattern,
                             .causal = true,
                             .kv_heads = 2,
                             .rope_base = base,
                             .query_key_norm = true,
                             .dtype = f64,
                             .device = test_device()});
  nn::MultiheadAttention other({.width = width,
                                .heads = 4,
                                .kv_heads = 2,
                                .block = 8,
                                .pattern = pattern,
                                .causal = true,
                                .rope_base = base,
                                .query_key_norm = true,
                                .dtype = f64,
                                .device = test_device()});
  shout(layer);
  const Tensor weight = layer.qkv.weight.data();
  CHECK(weight.shape() == Shape{64, width});
  const auto give = [&](const std::string& name, const Tensor& value) {
    for (const auto& p : other.named_parameters())
      if (p.name == name) p.variable.set_data(Reference::of(value).tensor(f64, test_device()));
  };
  give("q_proj_weight", weight.slice(0, 0, 32));
  give("k_proj_weight", weight.slice(0, 32, 48));
  give("v_proj_weight", weight.slice(0, 48, 64));
  give("in_proj_bias", layer.qkv.bias.data());
  give("out_proj.weight", layer.out.weight.data());
  give("out_proj.bias", layer.out.bias.data());
  for (const std::string name : {"q_norm.weight", "k_norm.weight"})
    give(name, parameter(layer, name).tensor(f64, test_device()));
  const Variable x(random_reference({2, 27, width}, 1).tensor(f64, test_device()), true);
  const Reference y = Reference::of(layer.forward(x).data());
  check_close("forward", y, Reference::of(other.forward(x).data()), 1e-12 * largest(y));
  gradcheck([&](const std::vector<Variable>& v) { return layer.forward(v[0]); },
            {Variable(x.data().slice(1, 0, 10), true)});
}

TEST_CASE("nn::SparseAttention: dropout of weights is of training alone") {
  nn::SparseAttention layer({.width = width,
                             .heads = 2,
                             .block = 8,
                             .pattern = [](const patterns::Size& s) { return patterns::dense(s); },
                             .weight_dropout = .5,
                             .device = test_device()});
  const Variable x(random_reference({1, 13, width}, 1).tensor(f32, test_device()));
  const auto run = [&] { return Reference::of(layer.forward(x).data()).values; };
  CHECK(run() != run());
  layer.eval();
  CHECK(run() == run());
}

TEST_CASE("nn::SparseTransformer: rotary places, shared keys and norms, of any context") {
  nn::SparseTransformer model(
      {.vocabulary = 11,
       .context = 29,
       .width = width,
       .layers = 2,
       .heads = 4,
       .block = 8,
       .pattern = [](const patterns::Size& s) { return patterns::dense(s, {.causal = true}); },
       .kv_heads = 2,
       .rope_base = base,
       .query_key_norm = true,
       .weight_dropout = .1,
       .dtype = f64,
       .device = test_device()});
  const auto parameters = model.named_parameters();
  CHECK(std::none_of(parameters.begin(), parameters.end(),
                     [](const auto& p) { return p.name == "position.weight"; }));
  shout(model);
  model.eval();
  Reference numbers({2, 29});
  for (size_t i = 0; i < numbers.values.size(); ++i) numbers[i] = static_cast<double>(i * 5 % 11);
  const Tensor tokens = numbers.tensor(i64, test_device());
  const Reference all = Reference::of(model.forward(tokens).data());
  std::vector<nn::KVCache> caches = model.make_caches(2);
  double worst = 0;
  for (int64_t at = 0, count = 1; at < 29; at += count, ++count) {
    count = std::min(count, 29 - at);
    const Reference part =
        Reference::of(model.forward(tokens.slice(1, at, at + count), caches).data());
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < 11; ++c)
          worst = std::max(worst, std::abs(part.at({b, i, c}) - all.at({b, at + i, c})));
  }
  CHECK(worst <= 1e-11 * largest(all));
}

TEST_CASE("nn::TransformerEncoderLayer and its decoder pass the options of attention on") {
  const nn::TransformerLayerOptions o{.width = 32,
                                      .heads = 4,
                                      .hidden = 24,
                                      .dropout = 0,
                                      .block = 8,
                                      .causal = true,
                                      .kv_heads = 2,
                                      .rope_base = base,
                                      .query_key_norm = true,
                                      .dtype = f64,
                                      .device = test_device()};
  const nn::TransformerDecoderLayer layer(o);
  for (const nn::MultiheadAttention* attention : {&layer.self_attn, &layer.multihead_attn}) {
    const bool self = attention == &layer.self_attn;
    CHECK(attention->options().kv_heads == 2);
    CHECK(attention->options().query_key_norm);
    CHECK(attention->options().rope_base == (self ? base : 0));
    CHECK(attention->options().causal == self);
  }
  const nn::TransformerEncoderLayer encoder(o);
  CHECK(encoder.self_attn.options().rope_base == base);
  CHECK(encoder.self_attn.k_proj_weight.shape() == Shape{16, 32});
  const Variable x(random_reference({1, 5, 32}, 1).tensor(f64, test_device()), true);
  const Variable memory(random_reference({1, 9, 32}, 2).tensor(f64, test_device()), true);
  gradcheck(
      [&](const std::vector<Variable>& v) { return layer.forward(v[0], encoder.forward(v[1])); },
      {x, memory});
}

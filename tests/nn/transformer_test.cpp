#include <bs/autograd/grad_check.h>
#include <bs/kernels/fill.h>
#include <bs/nn/block_sparse_linear.h>
#include <bs/nn/kronecker_linear.h>
#include <bs/nn/transformer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

LayoutPtr causal_fixed(const patterns::Size& size) {
  return patterns::fixed(size, {.local_blocks = 2, .causal = true});
}

nn::SparseTransformerOptions small(DType dtype = f32) {
  return {.vocabulary = 11,
          .context = 32,
          .width = 16,
          .layers = 2,
          .heads = 2,
          .block = 8,
          .pattern = causal_fixed,
          .dtype = dtype,
          .device = test_device()};
}

Tensor tokens(const Shape& shape, uint64_t seed) {
  Reference r = random_reference(shape, seed, 0, 11);
  for (double& v : r.values) v = std::floor(v);
  return r.tensor(i32, test_device());
}

double deviation(const Variable& v) {
  double sum = 0;
  const Reference r = Reference::of(v.data());
  for (double x : r.values) sum += x * x;
  return std::sqrt(sum / static_cast<double>(r.values.size()));
}

}  // namespace

TEST_CASE("nn::SparseTransformer: names and shapes of its parameters") {
  nn::SparseTransformerOptions o = small();
  o.layers = 1;
  const nn::SparseTransformer model(o);
  std::string all;
  for (const auto& [name, p] : model.named_parameters()) all += name + to_string(p.shape()) + " ";
  CHECK(all ==
        "embedding.weight[11, 16] position.weight[32, 16] blocks.0.norm1.weight[16] "
        "blocks.0.norm1.bias[16] blocks.0.attention.qkv.weight[48, 16] "
        "blocks.0.attention.qkv.bias[48] blocks.0.attention.out.weight[16, 16] "
        "blocks.0.attention.out.bias[16] blocks.0.norm2.weight[16] blocks.0.norm2.bias[16] "
        "blocks.0.fc1.weight[64, 16] blocks.0.fc1.bias[64] blocks.0.fc2.weight[16, 64] "
        "blocks.0.fc2.bias[16] norm.weight[16] norm.bias[16] head.weight[11, 16] ");
}

TEST_CASE("nn::SparseTransformer: starts as GPT-2") {
  nn::SparseTransformerOptions o = small();
  o.width = 128;
  o.layers = 8;
  const nn::SparseTransformer model(o);
  for (const auto& [key, p] : model.named_parameters()) {
    const std::string name = key;
    CAPTURE(name);
    if (name.ends_with("bias")) {
      CHECK(deviation(p) == 0);
    } else if (p.rank() == 1) {
      CHECK(deviation(p) == 1);
    } else {
      const bool residual = name.ends_with("out.weight") || name.ends_with("fc2.weight");
      CHECK(deviation(p) == doctest::Approx(residual ? 0.02 / 4 : 0.02).epsilon(0.05));
    }
  }
}

TEST_CASE("nn::SparseTransformer: logits see the past only, whatever the length") {
  nn::SparseTransformer model(small());
  for (const auto& [name, p] : model.named_parameters())  // far from the quiet start
    p.set_data(random_reference(p.shape(), name.size(), -0.5, 0.5).tensor(f32, test_device()));
  const Tensor input = tokens({2, 32}, 1);
  const Reference whole = Reference::of(model.forward(input).data());
  REQUIRE(whole.shape == Shape{2, 32, 11});
  Reference changed = Reference::of(input);
  changed.at({0, 20}) = changed.at({0, 20}) == 3 ? 4 : 3;
  const Reference after = Reference::of(model.forward(changed.tensor(i64, test_device())).data());
  bool differs = false;
  for (int64_t t = 0; t < 32; ++t)
    for (int64_t c = 0; c < 11; ++c) {
      CHECK(whole.at({1, t, c}) == after.at({1, t, c}));
      if (t < 20) CHECK(whole.at({0, t, c}) == after.at({0, t, c}));
      differs = differs || whole.at({0, t, c}) != after.at({0, t, c});
    }
  CHECK(differs);
  const Tensor half = Reference::of(input.slice(1, 0, 16)).tensor(i32, test_device());
  const Reference shorter = Reference::of(model.forward(half).data());
  for (int64_t t = 0; t < 16; ++t)
    CHECK(shorter.at({0, t, 5}) == doctest::Approx(whole.at({0, t, 5})).epsilon(1e-4));
}

TEST_CASE("nn::TransformerBlock: gradients reach every parameter and the input") {
  nn::TransformerBlock module({.width = 16,
                               .heads = 2,
                               .block = 8,
                               .pattern = causal_fixed,
                               .dtype = f64,
                               .device = test_device()});
  std::vector<Variable> inputs{
      Variable(random_reference({1, 16, 16}, 1).tensor(f64, test_device()), true)};
  for (const Variable& p : module.parameters()) {
    p.set_data(random_reference(p.shape(), inputs.size()).tensor(f64, test_device()));
    inputs.push_back(p);
  }
  gradcheck(
      [&](const std::vector<Variable>& v) {
        // Every handle to a parameter: the members' own, replaced by what gradcheck moves.
        size_t next = 1;
        for (Variable* p : {&module.norm1.weight, &module.norm1.bias, &module.attention.qkv.weight,
                            &module.attention.qkv.bias, &module.attention.out.weight,
                            &module.attention.out.bias, &module.norm2.weight, &module.norm2.bias})
          *p = v[next++];
        for (const nn::Layer* layer : {&module.fc1, &module.fc2}) {
          auto& linear = dynamic_cast<nn::Linear&>(layer->module());
          linear.weight = v[next++];
          linear.bias = v[next++];
        }
        return module.forward(v[0]);
      },
      inputs);
}

TEST_CASE("nn::SparseTransformer: sparse feed-forward layers keep the names and start louder") {
  nn::SparseTransformerOptions o = small();
  o.width = 64;
  o.mlp_pattern = [](const patterns::Size& size) {
    return patterns::random(size, {.density = 0.25, .seed = 1});
  };
  const nn::SparseTransformer model(o);
  const auto* fc1 = dynamic_cast<const nn::BlockSparseLinear*>(&model.blocks[0]->fc1.module());
  REQUIRE(fc1);
  CHECK(fc1->layout()->height() == 256);
  CHECK(fc1->layout()->width() == 64);
  CHECK(fc1->layout()->density() == 0.25);
  CHECK(deviation(fc1->weight) == doctest::Approx(0.04).epsilon(0.05));
  std::vector<std::string> names;
  for (const auto& p : model.named_parameters()) names.push_back(p.name);
  CHECK(std::count(names.begin(), names.end(), "blocks.1.fc2.weight") == 1);
  const Variable logits = model.forward(tokens({1, 16}, 2));
  logits.backward(ones({1, 16, 11}, f32, test_device()));
  for (const Variable& p : model.parameters()) CHECK(p.grad().defined());
}

TEST_CASE("nn::SparseTransformer: padding changes nothing before it, with caches or without") {
  nn::SparseTransformer model(small(f64));
  model.eval();
  const int64_t context = model.options().context, length = context - 3;
  Reference numbers({2, context}), keep({2, context});
  for (size_t i = 0; i < numbers.values.size(); ++i) {
    numbers[i] = static_cast<double>(i * 5 % 7);
    keep[i] = static_cast<int64_t>(i) % context < length;
  }
  const Tensor read = numbers.tensor(i64, test_device());
  const Tensor mask = keep.tensor(boolean, test_device());
  const auto logits = [](const Variable& y) { return Reference::of(y.data()); };
  const Reference whole = logits(model.forward(read));
  const Reference padded = logits(model.forward(read, mask));
  std::vector<nn::KVCache> caches = model.make_caches(2);
  int64_t at = 0;
  const auto same = [&](const Reference& part, int64_t from, int64_t count) {
    double worst = 0;
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < whole.shape[2]; ++c)
          worst = std::max(worst, std::abs(part.at({b, i, c}) - whole.at({b, from + i, c})));
    return worst <= 1e-12 * largest(whole);
  };
  CHECK(same(padded, 0, length));
  for (int64_t count = 1; at < context; at += count, ++count) {
    count = std::min(count, context - at);
    CHECK(same(logits(model.forward(read.slice(1, at, at + count), caches)), at, count));
  }
}

TEST_CASE("nn::SparseTransformer: feed-forward layers of factors start as loud as dense ones") {
  nn::SparseTransformerOptions o = small();
  o.width = 64;
  o.mlp_factors = 2;
  const nn::SparseTransformer model(o);
  const auto* fc1 = dynamic_cast<const nn::KroneckerLinear*>(&model.blocks[0]->fc1.module());
  REQUIRE(fc1);
  CHECK(fc1->extents() == std::vector<nn::KroneckerExtents>{{8, 16}, {8, 16}});
  CHECK(deviation(fc1->factors[0]) * deviation(fc1->factors[1]) ==
        doctest::Approx(0.02).epsilon(0.25));
  const Variable logits = model.forward(tokens({1, 16}, 2));
  logits.backward(ones({1, 16, 11}, f32, test_device()));
  for (const Variable& p : model.parameters()) CHECK(p.grad().defined());
}

TEST_CASE("nn::SparseTransformer: dropout in training only") {
  nn::SparseTransformerOptions o = small();
  o.dropout = 0.2;
  nn::SparseTransformer model(o);
  const Tensor input = tokens({1, 16}, 3);
  const auto run = [&] { return Reference::of(model.forward(input).data()).values; };
  CHECK(run() != run());
  model.eval();
  CHECK(run() == run());
}

TEST_CASE("nn::SparseTransformer: one seed gives one model, and 16 bits do") {
  manual_seed(7);
  const nn::SparseTransformer one(small());
  manual_seed(7);
  const nn::SparseTransformer two(small());
  const auto a = one.parameters(), b = two.parameters();
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(Reference::of(a[i].data()).values == Reference::of(b[i].data()).values);
  for (DType dtype : {bf16, f16, f64}) {
    const nn::SparseTransformer model(small(dtype));
    CHECK(model.forward(tokens({1, 8}, 4)).dtype() == dtype);
  }
}

TEST_CASE("nn::SparseTransformer: errors") {
  const nn::SparseTransformer model(small());
  CHECK_THROWS_WITH_AS(model.forward(tokens({1, 40}, 1)),
                       "transformer: 40 tokens for a context of 32", Error);
  CHECK_THROWS_WITH_AS(model.forward(tokens({8}, 1)),
                       "transformer: tokens [8] are not [batch, sequence]", Error);
  nn::SparseTransformerOptions o = small();
  o.layers = 0;
  CHECK_THROWS_WITH_AS(nn::SparseTransformer{o}, "transformer: 0 layers", Error);
  o = small();
  o.hidden = 20;
  o.mlp_pattern = [](const patterns::Size& size) { return patterns::dense(size); };
  CHECK_THROWS_WITH_AS(
      nn::SparseTransformer{o},
      "transformer: a sparse layer from 16 to 20 features cannot be cut into blocks of 8", Error);
  o.mlp_factors = 2;
  CHECK_THROWS_WITH_AS(nn::SparseTransformer{o},
                       "transformer: a feed-forward part with a pattern and 2 factors", Error);
}

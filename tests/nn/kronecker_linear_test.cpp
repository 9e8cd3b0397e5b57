#include <bs/autograd/grad_check.h>
#include <bs/kernels/activation.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/linear.h>
#include <bs/lib/memory.h>
#include <bs/nn/kronecker_linear.h>
#include <bs/nn/linear.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

double deviation(const Reference& r) {
  double sum = 0;
  for (const double v : r.values) sum += v * v;
  return std::sqrt(sum / static_cast<double>(r.values.size()));
}

double distance(const Reference& a, const Reference& b) {
  double sum = 0, all = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
    all += b[i] * b[i];
  }
  return std::sqrt(sum / all);
}

}  // namespace

TEST_CASE("kronecker_factors: as equal as divisors allow, large parts together") {
  using E = nn::KroneckerExtents;
  using All = std::vector<E>;
  CHECK(nn::kronecker_factors(4096, 4096) == All{{64, 64}, {64, 64}});
  CHECK(nn::kronecker_factors(512, 2048) == All{{32, 64}, {16, 32}});
  CHECK(nn::kronecker_factors(12, 30, 2) == All{{4, 6}, {3, 5}});
  CHECK(nn::kronecker_factors(32768, 32768, 5) == All{{8, 8}, {8, 8}, {8, 8}, {8, 8}, {8, 8}});
  CHECK(nn::kronecker_factors(7, 1, 2) == All{{7, 1}, {1, 1}});
  CHECK(nn::kronecker_factors(1, 1, 1) == All{{1, 1}});
}

TEST_CASE("nn::KroneckerLinear: what Linear gives with its weight") {
  for (const Activation f : {Activation::none, Activation::gelu_tanh}) {
    const nn::KroneckerLinear layer(
        {.in = 12, .out = 30, .activation = f, .dtype = f64, .device = test_device()});
    const Tensor x = random_reference({4, 3, 12}, 1).tensor(f64, test_device());
    Tensor expected = linear(x, layer.weight(), layer.bias.data());
    if (f != Activation::none) expected = gelu(expected, Gelu::tanh);
    CHECK(layer.forward(x).shape() == Shape{4, 3, 30});
    CHECK(distance(Reference::of(layer.forward(x).data()), Reference::of(expected)) < 1e-14);
    gradcheck([&](const std::vector<Variable>& v) { return layer.forward(v[0]); },
              {Variable(x, true), layer.factors[0], layer.factors[1], layer.bias});
  }
}

TEST_CASE("nn::KroneckerLinear: names, and far fewer numbers than a dense layer") {
  const nn::KroneckerLinear layer({.in = 512, .out = 2048, .device = test_device()});
  const auto parameters = layer.named_parameters();
  REQUIRE(parameters.size() == 3);
  CHECK(parameters[0].name == "factors.0");
  CHECK(parameters[1].name == "factors.1");
  CHECK(parameters[2].name == "bias");
  CHECK(layer.parameter_count() == 32 * 64 + 16 * 32 + 2048);
  CHECK(to_string(layer) ==
        "factors.0 f32 [32, 64]\nfactors.1 f32 [16, 32]\nbias f32 [2048]\n"
        "4608 elements, where a dense layer has 1050624");
  const nn::KroneckerLinear bare(
      {.in = 512, .out = 2048, .count = 3, .bias = false, .dtype = bf16, .device = test_device()});
  CHECK(bare.named_parameters().size() == 3);
  CHECK(bare.weight().dtype() == bf16);
}

TEST_CASE("nn::KroneckerLinear: starts with the variance of a dense layer's results") {
  for (const int count : {1, 2, 3}) {
    const nn::KroneckerLinear layer(
        {.in = 4096, .out = 4096, .count = count, .bias = false, .device = test_device()});
    const Tensor x = random_reference({64, 4096}, 1, -1.7, 1.7).tensor(f32, test_device());
    const double expected = deviation(Reference::of(x)) / std::sqrt(3.0);
    const double actual = deviation(Reference::of(layer.forward(x).data()));
    CHECK(actual > 0.7 * expected);
    CHECK(actual < 1.4 * expected);
  }
}

TEST_CASE("nn::KroneckerLinear: prefixes kept, for memory, give the same gradients") {
  // Several passes: 300 x 2 x 150 elements are more than a tile.
  const nn::KroneckerLinearOptions options{.in = 270000,
                                           .out = 3600,
                                           .factors = {{300, 2}, {2, 300}, {150, 3}, {3, 2}},
                                           .dtype = f64,
                                           .device = test_device()};
  nn::KroneckerLinearOptions keeping = options;
  keeping.keep_prefixes = true;
  const nn::KroneckerLinear plain(options), kept(keeping);
  std::vector<Tensor> factors;
  for (size_t f = 0; f < plain.factors.size(); ++f) {
    factors.push_back(random_reference(plain.factors[f].shape(), f).tensor(f64, test_device()));
    plain.factors[f].set_data(factors.back());
    kept.factors[f].set_data(factors.back());
  }
  kept.bias.set_data(plain.bias.data());
  const Tensor x = random_reference({2, 270000}, 7).tensor(f64, test_device());
  const Tensor dy = random_reference({2, 3600}, 8).tensor(f64, test_device());
  const auto run = [&](const nn::KroneckerLinear& layer, std::vector<Tensor>& all) {
    const Variable v(x, true);
    const int64_t before = memory_statistics(test_device()).in_use;
    const Variable y = layer.forward(v);
    const int64_t held = memory_statistics(test_device()).in_use - before;
    y.backward(dy);
    all = {y.data(), v.grad()};
    for (const Variable& p : layer.parameters()) all.push_back(p.grad());
    return held;
  };
  std::vector<Tensor> expected, actual;
  const int64_t more = -run(plain, expected) + run(kept, actual);
  int64_t prefixes = 0;
  for (const Tensor& t : kron_matmul_kept(x, factors, {}, {.keep_prefixes = true}).prefixes)
    prefixes += t.bytes();
  CHECK(prefixes > 0);
  CHECK(more >= prefixes);
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(distance(Reference::of(actual[i]), Reference::of(expected[i])) < 1e-13);
}

TEST_CASE("nn::KroneckerLinear: a fit finds a product, and comes close to what is almost one") {
  const nn::KroneckerLinear truth({.in = 24, .out = 60, .count = 3, .dtype = f64});
  const nn::KroneckerLinear layer({.in = 24, .out = 60, .count = 3, .device = test_device()});
  CHECK(layer.fit(truth.weight()) < 1e-12);
  CHECK(distance(Reference::of(layer.weight()), Reference::of(truth.weight())) < 1e-5);
  const Tensor noise = random_reference({60, 24}, 5, -1e-3, 1e-3).tensor(f64, Device::cpu());
  const double error = layer.fit(add(truth.weight(), noise));
  CHECK(error > 0);
  CHECK(error < distance(Reference::of(add(truth.weight(), noise)), Reference::of(truth.weight())));
  const nn::KroneckerLinear one({.in = 5, .out = 7, .count = 1, .dtype = f64});
  CHECK(one.fit(random_reference({7, 5}, 6).tensor(f64, Device::cpu())) < 1e-15);
  const nn::KroneckerLinear zero({.in = 4, .out = 4, .dtype = f64});
  CHECK(zero.fit(Reference({4, 4}).tensor(f64, Device::cpu())) == 0);
}

TEST_CASE("nn::KroneckerLinear: the best two factors are the first singular pair") {
  // Of a block matrix [[2 A, 0], [0, B]] with |A| = |B| = 1 and A orthogonal to B, 2 A is kept.
  const nn::KroneckerLinear layer({.in = 4, .out = 4, .dtype = f64});
  Reference weight({4, 4});
  weight.at({0, 0}) = 2;
  weight.at({2, 3}) = 1;
  CHECK(layer.fit(weight.tensor(f64, Device::cpu())) == doctest::Approx(std::sqrt(1.0 / 5)));
}

TEST_CASE("nn::KroneckerLinear: as the documentation shows it") {
  const nn::Linear dense({.in = 512, .out = 2048});
  const nn::KroneckerLinear layer({.in = 512, .out = 2048});  // factors [32, 64] and [16, 32]
  const double error = layer.fit(dense.weight.data());        // of the weight, relative
  CHECK(error > 0.9);                                         // random weights are no product
  CHECK(error < 1);
}

TEST_CASE("nn::KroneckerLinear refuses what does not fit") {
  CHECK_THROWS_WITH_AS(nn::KroneckerLinear({.in = 0, .out = 3}),
                       "kronecker_linear: 2 factors from 0 to 3 features", Error);
  CHECK_THROWS_WITH_AS(nn::KroneckerLinear({.in = 6, .out = 6, .factors = {{2, 2}, {3, 2}}}),
                       "kronecker_linear: factors from 6 to 4 features for a layer from 6 to 6",
                       Error);
  const nn::KroneckerLinear layer({.in = 6, .out = 4});
  CHECK_THROWS_WITH_AS(layer.fit(Tensor::empty({6, 4}, f32)),
                       "kronecker_linear: a weight [6, 4] for a layer from 6 to 4 features", Error);
}

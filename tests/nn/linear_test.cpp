#include <bs/autograd/grad_check.h>
#include <bs/nn/linear.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

TEST_CASE("nn::Linear: y = x W^T + b") {
  const nn::Linear layer({.in = 2, .out = 3, .dtype = f64, .device = test_device()});
  layer.weight.set_data(Tensor::from({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {3, 2}).to(test_device()));
  layer.bias.set_data(Tensor::from({0.5, 0.0, -0.5}).to(test_device()));
  const Tensor x = Tensor::from({1.0, -1.0, 2.0, 10.0}, {2, 1, 2}).to(test_device());
  const Variable y = layer.forward(x);
  CHECK(y.shape() == Shape{2, 1, 3});
  CHECK(Reference::of(y.data()).values == std::vector<double>{-0.5, -1, -1.5, 22.5, 46, 69.5});
  gradcheck([&](const std::vector<Variable>& v) { return layer.forward(v[0]); },
            {Variable(x, true)});
}

TEST_CASE("nn::Linear: starts within 1 / sqrt(in), with names") {
  const nn::Linear layer({.in = 100, .out = 50, .device = test_device()});
  const auto parameters = layer.named_parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "weight");
  CHECK(parameters[1].name == "bias");
  CHECK(layer.weight.shape() == Shape{50, 100});
  CHECK(layer.bias.shape() == Shape{50});
  for (const Variable& p : {layer.weight, layer.bias}) {
    const Reference r = Reference::of(p.data());
    const auto [low, high] = std::minmax_element(r.values.begin(), r.values.end());
    CHECK(*low >= -0.1);
    CHECK(*high <= 0.1);
    CHECK(*low < -0.05);
    CHECK(*high > 0.05);
  }
}

TEST_CASE("nn::Linear: options") {
  const nn::Linear layer(
      {.in = 2, .out = 3, .bias = false, .dtype = bf16, .device = test_device()});
  CHECK(layer.named_parameters().size() == 1);
  CHECK(!layer.bias.defined());
  CHECK(layer.weight.dtype() == bf16);
  CHECK(layer.forward(Tensor::empty({5, 2}, bf16, test_device())).shape() == Shape{5, 3});
  constexpr auto message =
      "linear: options .in = {} and .out = {} must both be positive and at most 2147483648";
  CHECK_THROWS_WITH_AS(nn::Linear({.in = 0, .out = 3}), format(message, 0, 3).c_str(), Error);
  const int64_t many = int64_t{1} << 40;
  CHECK_THROWS_WITH_AS(nn::Linear({.in = 2, .out = many}), format(message, 2, many).c_str(), Error);
}

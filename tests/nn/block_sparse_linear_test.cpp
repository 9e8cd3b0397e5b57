#include <bs/autograd/grad_check.h>
#include <bs/nn/block_sparse_linear.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

namespace {

constexpr int block = 8;

/// Three block rows (three blocks, one, none) over four block columns.
LayoutPtr uneven() {
  return Layout::from_blocks(1, 3, 4, block, {{0, 0, 0}, {0, 0, 1}, {0, 0, 3}, {0, 1, 2}});
}

/// The dense weight [24, 32] with zeros where there is no block.
Reference dense(const Variable& weight) {
  const Reference blocks = Reference::of(weight.data());
  Reference w({3 * block, 4 * block});
  const std::vector<std::pair<int, int>> at{{0, 0}, {0, 1}, {0, 3}, {1, 2}};
  for (int64_t n = 0; n < 4; ++n)
    for (int64_t i = 0; i < block; ++i)
      for (int64_t j = 0; j < block; ++j)
        w.at({at[static_cast<size_t>(n)].first * block + i,
              at[static_cast<size_t>(n)].second * block + j}) = blocks.at({n, i, j});
  return w;
}

double largest(const Tensor& x) {
  double top = 0;
  for (double v : Reference::of(x).values) top = std::max(top, std::abs(v));
  return top;
}

}  // namespace

TEST_CASE("nn::BlockSparseLinear: equals the dense layer of the same weight") {
  const nn::BlockSparseLinear layer({.layout = uneven(), .dtype = f64, .device = test_device()});
  const Reference w = dense(layer.weight), bias = Reference::of(layer.bias.data());
  const Reference x = random_reference({2, 5, 32}, 1);
  const Variable y = layer.forward(x.tensor(f64, test_device()));
  REQUIRE(y.shape() == Shape{2, 5, 24});
  const Reference actual = Reference::of(y.data());
  for (int64_t row = 0; row < 10; ++row)
    for (int64_t o = 0; o < 24; ++o) {
      double expected = bias.at({o});
      for (int64_t i = 0; i < 32; ++i)
        expected += x[static_cast<size_t>(row * 32 + i)] * w.at({o, i});
      CHECK(std::abs(actual[static_cast<size_t>(row * 24 + o)] - expected) <= 1e-14);
    }
}

TEST_CASE("nn::BlockSparseLinear: gradients of input, weight and bias") {
  const nn::BlockSparseLinear layer({.layout = uneven(), .dtype = f64, .device = test_device()});
  const Variable x(random_reference({3, 32}, 2).tensor(f64, test_device()), true);
  gradcheck([&](const std::vector<Variable>& v) { return layer.forward(v[0]); }, {x});
  const auto of_parameters = [&](const std::vector<Variable>& v) {
    nn::BlockSparseLinear other({.layout = uneven(), .dtype = f64, .device = test_device()});
    other.weight = v[0];
    other.bias = v[1];
    return other.forward(x);
  };
  gradcheck(of_parameters, {layer.weight, layer.bias});
}

TEST_CASE("nn::BlockSparseLinear: each block row starts by the inputs it sees") {
  const nn::BlockSparseLinear layer({.layout = uneven(), .device = test_device()});
  CHECK(layer.weight.shape() == Shape{4, block, block});
  const double three = 1 / std::sqrt(24.0), one = 1 / std::sqrt(8.0);
  CHECK(largest(layer.weight.data().slice(0, 0, 3)) <= three);
  CHECK(largest(layer.weight.data().slice(0, 0, 3)) > 0.9 * three);
  CHECK(largest(layer.weight.data().slice(0, 3, 4)) <= one);
  CHECK(largest(layer.weight.data().slice(0, 3, 4)) > three);
  CHECK(largest(layer.bias.data().slice(0, 0, 8)) <= three);
  CHECK(largest(layer.bias.data().slice(0, 8, 16)) <= one);
  CHECK(largest(layer.bias.data().slice(0, 16, 24)) == 0);
}

TEST_CASE("nn::BlockSparseLinear: options and errors") {
  const nn::BlockSparseLinear layer({.layout = uneven(), .bias = false, .device = test_device()});
  CHECK(layer.named_parameters().size() == 1);
  CHECK(layer.forward(Tensor::empty({32}, f32, test_device())).shape() == Shape{24});
  CHECK(layer.matrix().layout == layer.layout());
  CHECK_THROWS_WITH_AS(layer.forward(Tensor::empty({5, 24}, f32, test_device())),
                       "block_sparse_linear: x [5, 24] for a weight [24, 32]", Error);
  CHECK_THROWS_WITH_AS(nn::BlockSparseLinear({}), "block_sparse_linear: no layout", Error);
  CHECK_THROWS_WITH_AS(
      nn::BlockSparseLinear({.layout = Layout::from_blocks(2, 1, 1, block, {{0, 0, 0}})}),
      "block_sparse_linear: a layout of 2 heads; a matrix has one", Error);
}

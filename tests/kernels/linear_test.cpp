#include <bs/autograd/linear.h>
#include <bs/kernels/linear.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {
/// x W^T, plus the bias where there is one.
Reference linear_reference(const References& in) {
  const int64_t k = in[0].shape.back(), n = in[1].shape[0];
  Shape shape = in[0].shape;
  shape[-1] = n;
  Reference y(shape);
  for (size_t i = 0; i < y.values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / n;
    const auto column = static_cast<int64_t>(i) % n;
    double sum = in.size() > 2 ? in[2][static_cast<size_t>(column)] : 0;
    for (int64_t l = 0; l < k; ++l)
      sum += in[0][static_cast<size_t>(row * k + l)] * in[1][static_cast<size_t>(column * k + l)];
    y[i] = sum;
  }
  return y;
}
}  // namespace

TEST_CASE("linear") {
  const std::vector<std::vector<Shape>> shapes = {
      {{3, 4}, {5, 4}, {5}},        {{4}, {5, 4}, {5}},    {{2, 3, 33}, {17, 33}, {17}},
      {{0, 4}, {5, 4}, {5}},        {{3, 0}, {5, 0}, {5}}, {{3, 4}, {0, 4}, {0}},
      {{65, 130}, {70, 130}, {70}}, {{1, 1}, {1, 1}, {1}}, {{2, 2, 2, 2}, {3, 2}, {3}},
      {{128, 64}, {64, 64}, {64}}};
  for (const auto& each : shapes) {
    check_op({.name = "linear",
              .inputs = each,
              .op = [](const Variables& v) { return linear(v[0], v[1], v[2]); },
              .reference = linear_reference});
    check_op({.name = "linear without bias",
              .inputs = {each[0], each[1]},
              .op = [](const Variables& v) { return linear(v[0], v[1]); },
              .reference = linear_reference});
  }
}

TEST_CASE("linear takes operands of any strides") {
  const Tensor x = random_reference({6, 4, 3}, 1).tensor(f64, test_device()).transpose(0, 1);
  const Tensor w = random_reference({6, 5}, 2).tensor(f64, test_device()).slice(0, 0, 6, 2);
  const Tensor b = random_reference({10}, 3).tensor(f64, test_device()).slice(0, 1, 10, 2);
  const Reference y = Reference::of(linear(x, w.transpose(0, 1), b));
  const Reference expected =
      linear_reference({Reference::of(x), Reference::of(w.transpose(0, 1)), Reference::of(b)});
  REQUIRE(y.shape == expected.shape);
  for (size_t i = 0; i < y.values.size(); ++i) CHECK(y[i] == doctest::Approx(expected[i]));
}

TEST_CASE("linear_backward computes what is wanted only") {
  const Tensor x = random_reference({3, 4}, 1).tensor(f32, test_device());
  const Tensor w = random_reference({5, 4}, 2).tensor(f32, test_device());
  const Tensor dy = random_reference({3, 5}, 3).tensor(f32, test_device());
  const LinearGrads grads = linear_backward(x, w, dy, {.x = false, .weight = true, .bias = false});
  CHECK_FALSE(grads.x.defined());
  CHECK(grads.weight.shape() == Shape{5, 4});
  CHECK_FALSE(grads.bias.defined());
}

TEST_CASE("linear refuses what does not fit") {
  const auto x = [](const Shape& shape, DType dtype = f32) { return Tensor::empty(shape, dtype); };
  CHECK_THROWS_WITH_AS(linear(x({2, 3}), x({3, 4})),
                       "linear: x [2, 3] and weight [3, 4] do not match: [..., in] and [out, in] "
                       "are expected",
                       Error);
  CHECK_THROWS_WITH_AS(linear(x({2, 3}), x({4, 3}), x({3})), "linear: bias [3] for weight [4, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(linear(x({2, 3}), x({4, 3}, bf16)), "linear: dtypes f32 and bf16 differ",
                       Error);
  CHECK_THROWS_WITH_AS(linear_backward(x({2, 3}), x({4, 3}), x({2, 3})),
                       "linear_backward: dy [2, 3] for x [2, 3] and weight [4, 3]", Error);
}

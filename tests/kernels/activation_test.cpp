#include <bs/autograd/activation.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>
#include <numbers>

using namespace bs;
using namespace bs::test;

namespace {

void check_activation(const char* name, Variable (*op)(const Variable&), double (*f)(double),
                      double range = 5) {
  for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3, 5}, Shape{2, 1031}})
    check_op({.name = name,
              .inputs = {shape},
              .op = [=](const Variables& v) { return op(v[0]); },
              .reference =
                  [=](const References& in) {
                    Reference y = in[0];
                    for (double& v : y.values) v = f(v);
                    return y;
                  },
              .low = -range,
              .high = range});
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

// Their gradients are computed from y, in which 16-bit types hold little of 1 - y near one.
TEST_CASE("tanh") {
  check_activation(
      "tanh", tanh, [](double x) { return std::tanh(x); }, 2);
}
TEST_CASE("sigmoid") { check_activation("sigmoid", sigmoid, logistic, 3); }
TEST_CASE("relu") {
  check_activation("relu", relu, [](double x) { return std::max(x, 0.0); });
}
TEST_CASE("silu") {
  check_activation("silu", silu, [](double x) { return x * logistic(x); });
}
TEST_CASE("gelu") {
  check_activation(
      "gelu", [](const Variable& x) { return gelu(x); },
      [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); });
  check_activation(
      "gelu by tanh", [](const Variable& x) { return gelu(x, Gelu::tanh); },
      [](double x) {
        // 1 + tanh(u) = 2 e^u / (e^u + e^-u), which does not cancel
        const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        return x * std::exp(u) / (std::exp(u) + std::exp(-u));
      });
}

TEST_CASE("activations at infinity, and of NaN") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from<float>({inf, -inf, 100, -100, nan}).to(test_device());
  const auto check = [](const Tensor& y, double top, double bottom, double high, double low) {
    const auto v = Reference::of(y).values;
    CHECK(v[0] == top);
    CHECK(v[1] == bottom);
    CHECK(v[2] == doctest::Approx(high));
    CHECK(v[3] == doctest::Approx(low));
    CHECK(std::isnan(v[4]));
  };
  check(tanh(x), 1, -1, 1, -1);
  check(sigmoid(x), 1, 0, 1, 0);
  check(relu(x), inf, 0, 100, 0);
}

TEST_CASE("activations refuse what they cannot do") {
  CHECK_THROWS_WITH_AS(gelu(Tensor::empty({2}, i32)),
                       "gelu: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
  CHECK_THROWS_WITH_AS(gelu_backward(Tensor::empty({2}, f32), Tensor::empty({2}, f64)),
                       "gelu_backward: dtypes f32 and f64 differ", Error);
  CHECK_THROWS_WITH_AS(silu_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "silu_backward: shapes [2] and [3] differ", Error);
}

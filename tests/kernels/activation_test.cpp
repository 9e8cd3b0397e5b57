#include <bs/autograd/activation.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/unary.h>
#include <bs/lib/half.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

using namespace bs;
using namespace bs::test;

namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

// Their gradients are computed from y, in which 16-bit types hold little of 1 - y near one.
TEST_CASE("tanh") {
  check_function(
      "tanh", tanh, [](double x) { return std::tanh(x); }, -2, 2);
}
TEST_CASE("sigmoid") { check_function("sigmoid", sigmoid, logistic, -3, 3); }
TEST_CASE("relu") {
  check_function(
      "relu", relu, [](double x) { return std::max(x, 0.0); }, -5, 5);
}
TEST_CASE("silu") {
  check_function(
      "silu", silu, [](double x) { return x * logistic(x); }, -5, 5);
}
TEST_CASE("gelu") {
  check_function(
      "gelu", [](const Variable& x) { return gelu(x); },
      [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }, -5, 5);
  check_function(
      "gelu by tanh", [](const Variable& x) { return gelu(x, Gelu::tanh); },
      [](double x) {
        // 1 + tanh(u) = 2 e^u / (e^u + e^-u), which does not cancel
        const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        return x * std::exp(u) / (std::exp(u) + std::exp(-u));
      },
      -5, 5);
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

TEST_CASE("relu, neg and abs of every 16-bit number are those of f32") {
  for (const DType dtype : {f16, bf16}) {
    CAPTURE(dtype);
    const Tensor x = Tensor::empty({65536}, dtype), dy = Tensor::empty({65536}, dtype);
    auto* const numbers = static_cast<uint16_t*>(x.data());
    auto* const slopes = static_cast<uint16_t*>(dy.data());
    for (size_t i = 0; i < 65536; ++i) {
      numbers[i] = static_cast<uint16_t>(i);
      slopes[i] = static_cast<uint16_t>(i * 40503);
    }
    const Tensor on = x.to(test_device()), d = dy.to(test_device());
    const auto check = [&](const char* name, const Tensor& y, const Tensor& wide) {
      CAPTURE(name);
      const auto got = Reference::of(y).values, want = Reference::of(wide).values;
      int64_t wrong = 0;
      for (size_t i = 0; i < got.size(); ++i)
        wrong += std::isnan(want[i])
                     ? !std::isnan(got[i])
                     : got[i] != want[i] || std::signbit(got[i]) != std::signbit(want[i]);
      CHECK(wrong == 0);
    };
    const Tensor wide = cast(on, f32);
    check("relu", relu(on), relu(wide));
    check("relu_backward", relu_backward(on, d), relu_backward(wide, cast(d, f32)));
    check("neg", neg(on), neg(wide));
    check("abs", abs(on), abs(wide));
  }
}

TEST_CASE("casts of f32 to f16 and bf16 agree with those of single numbers") {
  std::vector<float> values;
  for (uint64_t i = 0; i < 1ULL << 32U; i += 65521)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(i)));
  const Tensor x = Tensor::from<float>(values, {static_cast<int64_t>(values.size())});
  const Tensor halves = cast(x, f16), brains = cast(x, bf16);
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const float h = static_cast<float>(half(values[i])),
                b = static_cast<float>(bfloat16(values[i]));
    const float got_h = static_cast<float>(halves.data<half>()[i]);
    const float got_b = static_cast<float>(brains.data<bfloat16>()[i]);
    wrong += std::isnan(h) ? !std::isnan(got_h) : got_h != h;
    wrong += std::isnan(b) ? !std::isnan(got_b) : got_b != b;
  }
  CHECK(wrong == 0);
}

TEST_CASE("activations refuse what they cannot do") {
  CHECK_THROWS_WITH_AS(gelu(Tensor::empty({2}, i32)),
                       "gelu: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
  CHECK_THROWS_WITH_AS(gelu_backward(Tensor::empty({2}, f32), Tensor::empty({2}, f64)),
                       "gelu_backward: dtypes f32 and f64 differ", Error);
  CHECK_THROWS_WITH_AS(silu_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "silu_backward: shapes [2] and [3] differ", Error);
}

#include <bs/autograd/unary.h>
#include <bs/kernels/unary.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

Tensor on_device(const Tensor& x) { return x.to(test_device()); }

}  // namespace

TEST_CASE("neg") {
  check_function("neg", neg, [](double x) { return -x; });
}
TEST_CASE("abs") {
  check_function("abs", abs, [](double x) { return std::abs(x); });
}
TEST_CASE("exp") {
  check_function("exp", exp, [](double x) { return std::exp(x); });
}
TEST_CASE("log") {
  check_function(
      "log", log, [](double x) { return std::log(x); }, 0.1, 3);
}
TEST_CASE("sqrt") {
  check_function(
      "sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.1, 3);
}
TEST_CASE("rsqrt") {
  check_function(
      "rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.1, 3);
}
TEST_CASE("reciprocal") {
  check_function(
      "reciprocal", reciprocal, [](double x) { return 1 / x; }, 0.5, 2);
}
TEST_CASE("clamp") {
  check_function(
      "clamp", [](const Variable& x) { return clamp(x, -0.4, 0.7); },
      [](double x) { return std::clamp(x, -0.4, 0.7); });
}

TEST_CASE("functions of integers") {
  const Tensor x = on_device(Tensor::from<int64_t>({-3, 0, 4}));
  CHECK(neg(x).dtype() == i64);
  CHECK(Reference::of(-x).values == std::vector<double>{3, 0, -4});
  CHECK(Reference::of(abs(x)).values == std::vector<double>{3, 0, 4});
  CHECK(Reference::of(clamp(x, -1, std::numeric_limits<double>::infinity())).values ==
        std::vector<double>{-1, 0, 4});
  CHECK(exp(x).dtype() == f32);
  const Tensor bytes = on_device(Tensor::from<uint8_t>({0, 1, 200}));
  for (const Tensor& y : {neg(bytes), abs(bytes), clamp(bytes, 1, 100)}) CHECK(y.dtype() == u8);
  CHECK(Reference::of(-bytes).values == std::vector<double>{0, 255, 56});
  CHECK(Reference::of(abs(bytes)).values == std::vector<double>{0, 1, 200});
  CHECK(Reference::of(clamp(bytes, -5, 100)).values == std::vector<double>{0, 1, 100});
  CHECK(Reference::of(clamp(bytes, 1, 300)).values == std::vector<double>{1, 1, 200});
  const Tensor flags = on_device(Tensor::from<bool>({true, false}));
  CHECK(clamp(flags, 0, 5).dtype() == i64);
  CHECK(Reference::of(clamp(flags, 0, 5)).values == std::vector<double>{1, 0});
  CHECK_THROWS_WITH_AS(neg(flags), "neg: of bool there is none; cast it first", Error);
  CHECK_THROWS_WITH_AS(abs(flags), "abs: of bool there is none; cast it first", Error);
}

TEST_CASE("functions at the ends of their domain") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = on_device(Tensor::from<float>({nan, inf, -inf, 0, -1}));
  const auto e = Reference::of(exp(x)).values;
  CHECK((std::isnan(e[0]) && e[1] == inf && e[2] == 0 && e[3] == 1));
  const auto l = Reference::of(log(x)).values;
  CHECK((std::isnan(l[0]) && l[1] == inf && std::isnan(l[2]) && l[3] == -inf && std::isnan(l[4])));
  CHECK(std::isnan(Reference::of(clamp(x, 0, 1))[0]));
  CHECK(Reference::of(abs_backward(x, x))[3] == 0);
}

TEST_CASE("functions of views with gaps") {
  const Reference r = random_reference({4, 6}, 5);
  const Tensor y = exp(r.tensor(f64, test_device()).transpose(0, 1).slice(0, 0, 6, 2));
  CHECK(y.is_contiguous());
  CHECK(Reference::of(y).at({1, 3}) == doctest::Approx(std::exp(r.at({3, 2}))));
}

TEST_CASE("functions refuse what they cannot do") {
  CHECK_THROWS_WITH_AS(clamp(Tensor::empty({1}, f32), 2, 1),
                       "clamp: bounds 2 and 1 are in no order", Error);
  CHECK_THROWS_WITH_AS(sqrt_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "sqrt_backward: shapes [2] and [3] differ", Error);
}

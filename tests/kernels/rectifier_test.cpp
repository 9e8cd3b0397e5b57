#include <bs/autograd/rectifier.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/rectifier.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

double plus(double x) { return std::log1p(std::exp(x)); }

}  // namespace

TEST_CASE("relatives of relu") {
  check_function(
      "leaky_relu", [](const Variable& x) { return leaky_relu(x, 0.2); },
      [](double x) { return x > 0 ? x : 0.2 * x; }, -4, 4);
  check_function(
      "elu", [](const Variable& x) { return elu(x, 1.5); },
      [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); }, -4, 4);
  check_function(
      "softplus", [](const Variable& x) { return softplus(x, 2); },
      [](double x) { return plus(2 * x) / 2; }, -4, 4);
  check_function(
      "mish", [](const Variable& x) { return mish(x); },
      [](double x) { return x * std::tanh(plus(x)); }, -4, 4);
  const auto hard_of = [](const Variable& x) { return hardswish(x); };
  // Away from the corners at -3 and 3.
  const auto hard = [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; };
  check_function("hardswish", hard_of, hard, -2.9, 2.9);
  check_function("hardswish", hard_of, hard, 3.1, 5);
  check_function("hardswish", hard_of, hard, -5, -3.1);
}

TEST_CASE("glu") {
  check_op({.name = "glu",
            .inputs = {{3, 10}},
            .op = [](const Variables& v) { return glu(v[0]); },
            .reference =
                [](const References& in) {
                  Reference y({3, 5});
                  for (int64_t r = 0; r < 3; ++r)
                    for (int64_t j = 0; j < 5; ++j)
                      y.at({r, j}) = in[0].at({r, j}) / (1 + std::exp(-in[0].at({r, j + 5})));
                  return y;
                }});
  CHECK_THROWS_WITH_AS(glu(Tensor::empty({2, 3}, f32)), "glu: axis -1 of shape [2, 3] is odd",
                       Error);
}

TEST_CASE("relatives of relu far out and where x is not finite") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x =
      Tensor::from<float>({std::numeric_limits<float>::quiet_NaN(), inf, -inf, 200, -20, -80})
          .to(test_device());
  const auto s = Reference::of(softplus(x)).values;
  CHECK((std::isnan(s[0]) && s[1] == inf && s[2] == 0 && s[3] == 200));
  CHECK(s[4] == doctest::Approx(std::exp(-20.0)));
  CHECK(s[5] == doctest::Approx(std::exp(-80.0)));
  // Where beta x is infinite and x is not.
  const Tensor large = Tensor::from<float>({1e38F, -1e38F}).to(test_device());
  for (const DType dtype : {f32, bf16}) {
    const Tensor in = cast(large, dtype);
    const auto of = Reference::of(softplus(in, 10)).values;
    CHECK((of[0] == Reference::of(in)[0] && of[1] == 0));
  }
  const auto m = Reference::of(mish(x)).values;
  CHECK((std::isnan(m[0]) && m[1] == inf && m[3] == 200));
  CHECK(m[4] == doctest::Approx(-20 * std::exp(-20.0)));
  const auto e = Reference::of(elu(x)).values;
  CHECK((std::isnan(e[0]) && e[1] == inf && e[2] == -1));
  const auto h = Reference::of(hardswish(x)).values;
  CHECK((std::isnan(h[0]) && h[1] == inf && h[2] == 0 && h[3] == 200));
  const auto l = Reference::of(leaky_relu(x)).values;
  CHECK((std::isnan(l[0]) && l[1] == inf && l[2] == -inf));
}

TEST_CASE("relatives of relu refuse what they cannot do") {
  CHECK_THROWS_WITH_AS(softplus(Tensor::empty({2}, f32), 0), "softplus: beta 0 <= 0", Error);
  CHECK_THROWS_WITH_AS(mish(Tensor::empty({2}, i64)),
                       "mish: dtype i64 is not supported; expected f64, f32, f16 or bf16", Error);
  CHECK_THROWS_WITH_AS(mish_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "mish_backward: shapes [2] and [3] differ", Error);
}

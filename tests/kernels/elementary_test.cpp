#include <bs/autograd/elementary.h>
#include <bs/autograd/rounding.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/rectifier.h>
#include <bs/kernels/rounding.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

Tensor on_device(const Tensor& x) { return x.to(test_device()); }
std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("elementary functions") {
  check_function("sin", sin, std::sin);
  check_function("cos", cos, std::cos);
  check_function("tan", tan, std::tan, -1.2, 1.2);
  check_function("erf", erf, std::erf);
  check_function("log1p", log1p, std::log1p, -0.8, 3);
  check_function("expm1", expm1, std::expm1);
}

TEST_CASE("elementary functions of what is small, not finite, or an integer") {
  const Tensor small = on_device(Tensor::from<float>({1e-9F, -1e-9F}));
  CHECK(values(log1p(small))[0] == doctest::Approx(1e-9));
  CHECK(values(expm1(small))[1] == doctest::Approx(-1e-9));
  const Tensor ends = on_device(Tensor::from<float>({not_a_number, inf, -inf, -1}));
  const auto l = values(log1p(ends)), e = values(erf(ends)), s = values(sin(ends));
  CHECK((std::isnan(l[0]) && l[1] == inf && std::isnan(l[2]) && l[3] == -inf));
  CHECK((std::isnan(e[0]) && e[1] == 1 && e[2] == -1));
  CHECK((std::isnan(s[0]) && std::isnan(s[1]) && std::isnan(s[2])));
  CHECK(cos(on_device(Tensor::from<int64_t>({0, 1}))).dtype() == f32);
  CHECK_THROWS_WITH_AS(erf_backward(Tensor::empty({2}, f32), Tensor::empty({3}, f32)),
                       "erf_backward: shapes [2] and [3] differ", Error);
}

TEST_CASE("gradients of tan and erf, in every dtype and for any strides") {
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor x = random_reference({5, 67}, 1, -2, 2).tensor(dtype, test_device());
    const Tensor dy = random_reference({5, 67}, 2, -2, 2).tensor(dtype, test_device());
    const auto check = [&](const Tensor& a, const Tensor& d) {
      const Reference v = Reference::of(a), g = Reference::of(d);
      const Reference t = Reference::of(tan_backward(a, d)), e = Reference::of(erf_backward(a, d));
      CHECK(t.shape == v.shape);
      for (size_t i = 0; i < v.values.size(); ++i) {
        CHECK(t[i] == doctest::Approx(g[i] * (1 + v[i] * v[i])).epsilon(2 * epsilon(dtype)));
        const double slope = 2 / std::sqrt(std::acos(-1.0)) * std::exp(-v[i] * v[i]);
        CHECK(e[i] == doctest::Approx(g[i] * slope).epsilon(4 * epsilon(dtype)));
      }
    };
    check(x, dy);
    check(x.transpose(0, 1), dy.transpose(0, 1));
    check(x.slice(1, 1, 66), dy.slice(1, 0, 65));
    check(x.slice(0, 0, 0), dy.slice(0, 0, 0));
    check(x.slice(0, 0, 1).expand({3, 67}), dy.slice(0, 0, 3));
  }
  const Tensor ends = on_device(Tensor::from<float>({not_a_number, inf, -inf, 0}));
  const Tensor ones = on_device(Tensor::from<float>({1, 1, 1, inf}));
  const auto t = values(tan_backward(ends, ones)), e = values(erf_backward(ends, ones));
  CHECK((std::isnan(t[0]) && t[1] == inf && t[2] == inf && t[3] == inf));
  CHECK((std::isnan(e[0]) && e[1] == 0 && e[2] == 0 && e[3] == inf));
  CHECK_THROWS_AS(tan_backward(Tensor::empty({2}, i64), Tensor::empty({2}, i64)), Error);
}

TEST_CASE("expm1 and elu in f32 are off by two units in the last place at most") {
  std::vector<float> numbers;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 20011)
    numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (int i = -20000; i < 20000; ++i) numbers.push_back(static_cast<float>(i) * 0.005F);
  for (const float x : {0.0F, -0.0F, inf, -inf, 88.7228F, 88.73F, 1e-45F}) numbers.push_back(x);
  const Tensor x = on_device(Tensor::from<float>(numbers, {static_cast<int64_t>(numbers.size())}));
  const auto e = values(expm1(x)), u = values(elu(x, 1));
  int wrong = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double v = numbers[i], exact = std::expm1(v);
    const auto near = [](double y, double expected) {
      if (std::isnan(expected)) return std::isnan(y);
      if (std::abs(expected) > 3.40282346e38) return y == std::copysign(HUGE_VAL, expected);
      return std::abs(y - expected) <= 0x1p-22 * std::abs(expected) + 0x1p-149;
    };
    wrong += !near(e[i], exact) || !near(u[i], v > 0 ? v : exact);
  }
  CHECK(wrong == 0);
  CHECK(std::signbit(e[numbers.size() - 6]));
}

TEST_CASE("powers in f32 are off by five units in the last place at most") {
  constexpr int64_t count = 20000;
  const Reference draws = random_reference({2, count}, 5, 0, 1);
  Reference bases({count}), exponents({count});
  for (size_t i = 0; i < count; ++i) {
    const double u = draws[i], v = 2 * draws[i + count] - 1;
    const int kind = static_cast<int>(i % 4);
    bases[i] = kind == 0   ? std::ldexp(1 + u, static_cast<int>(i % 250) - 125)
               : kind == 1 ? 0.5 + u
               : kind == 2 ? 1 + 1e-3 * (u - 0.5)
                           : -20 * u;
    exponents[i] = kind == 0 ? v : kind == 1 ? 150 * v : kind == 2 ? 1e5 * v : std::floor(9 * v);
  }
  const Tensor a = bases.tensor(f32, test_device()), b = exponents.tensor(f32, test_device());
  const Reference of = Reference::of(a), by = Reference::of(b), y = Reference::of(pow(a, b));
  int wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const double exact = std::pow(of[i], by[i]);
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    wrong += std::abs(exact) < 3.4e38 && !(std::abs(y[i] - exact) <= 5 * unit);
  }
  CHECK(wrong == 0);
}

TEST_CASE("gradients by the exponents of powers of all kinds of numbers, side by side") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> kinds = {
      0,    -0.0,     1,    -1,   0.5, 2,   -2, -2.5, 3,        0.1,     0.25,      1.0078125,
      1e20, 0x1p-130, 1e-8, 0.75, 7.5, 100, -7, -0.5, infinity, 0x1p-20, -infinity, std::nan("")};
  const auto count = static_cast<int64_t>(kinds.size());
  Reference a({3, count, count}), b(a.shape), slopes(a.shape);
  for (size_t i = 0; i < a.values.size(); ++i) {
    // Of the last third all hold, so that no vector of it is computed otherwise.
    const bool plain = i >= a.values.size() / 3 * 2;
    a[i] =
        plain ? 0.01 + static_cast<double>(i % 577) / 97 : kinds[i / kinds.size() % kinds.size()];
    b[i] = plain ? static_cast<double>(i % 101) / 13 - 4 : kinds[i % kinds.size()];
    slopes[i] = i < a.values.size() / 2 ? 1 : -0.75;
  }
  for (const DType dtype : {f64, f32, f16, bf16}) {
    const Tensor p = a.tensor(dtype, test_device()), q = b.tensor(dtype, test_device());
    const Tensor dy = slopes.tensor(dtype, test_device());
    const Reference of = Reference::of(p), by = Reference::of(q);
    const Reference actual = Reference::of(pow_backward_b(p, q, dy));
    Reference exact(a.shape);
    for (size_t i = 0; i < of.values.size(); ++i)
      exact[i] =
          of[i] == 0 && by[i] >= 0 ? 0 : slopes[i] * std::pow(of[i], by[i]) * std::log(of[i]);
    const Reference expected = Reference::of(exact.tensor(dtype, Device::cpu()));
    for (size_t i = 0; i < of.values.size(); ++i) {
      CAPTURE(to_string(dtype));
      CAPTURE(of[i]);
      CAPTURE(by[i]);
      const double least = dtype == f64 ? 0 : dtype == f16 ? 0x1p-24 : 1e-37;
      const double roundings = is_low_precision(dtype) ? 2 : 8;
      const double near = roundings * epsilon(dtype) * std::abs(expected[i]) + least;
      CHECK((actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i])) ||
             std::abs(actual[i] - expected[i]) <= near));
    }
  }
}

TEST_CASE("gradients of powers are finite where a product on the way is not") {
  struct Case {
    DType dtype;
    double a, b, dy;
  };
  // The power times dy is beyond the dtype's range, and the logarithm brings it back.
  for (const Case& c :
       {Case{f32, 1.0001, 8.6e5, 64}, {bf16, 1.0078125, 11008, 64}, {f64, 1.0001, 7.08e6, 64}}) {
    // Many: whole vectors of what holds. Few: what a thread computes one by one.
    for (const int64_t count : {int64_t{1}, int64_t{1000}}) {
      const Tensor a = full({count}, c.a, c.dtype, test_device());
      const Tensor b = full({count}, c.b, c.dtype, test_device());
      const Tensor dy = full({count}, c.dy, c.dtype, test_device());
      const double of = Reference::of(a)[0], by = Reference::of(b)[0];
      // The power times a base near one is as inexact as the logarithm times the exponent.
      const double expected = c.dy * (std::pow(of, by) * std::log(of));
      for (const double found : Reference::of(pow_backward_b(a, b, dy)).values)
        CHECK(found == doctest::Approx(expected).epsilon(is_low_precision(c.dtype) ? 0.02 : 1e-4));
    }
  }
  // dy times the exponent is, and the power is zero.
  for (const auto& [dtype, dy] : {std::pair{f32, 1e30}, {bf16, 1e30}, {f64, 1e300}})
    for (const double found : Reference::of(pow_backward_a(full({1000}, 0.5, dtype, test_device()),
                                                           full({1000}, 1e9, dtype, test_device()),
                                                           full({1000}, dy, dtype, test_device())))
                                  .values)
      CHECK(found == 0);
}

TEST_CASE("angles of many turns, beside small ones") {
  Reference angles({203});  // more than a block, and a part of one
  for (size_t i = 0; i < angles.values.size(); ++i)
    angles[i] = i % 7 == 3 ? std::ldexp(1.5 + 0.001 * static_cast<double>(i), static_cast<int>(i))
                           : 0.1 * static_cast<double>(i);
  for (const DType dtype : {f64, f32, bf16}) {
    Reference x = angles;
    if (dtype == f32)
      for (double& v : x.values) v = std::min(v, 1e38);
    const Tensor t = x.tensor(dtype, test_device());
    x = Reference::of(t);
    const Reference s = Reference::of(sin(t)), c = Reference::of(cos(t)), q = Reference::of(tan(t));
    for (size_t i = 0; i < x.values.size(); ++i) {
      if (std::isinf(x[i])) continue;
      CHECK(std::abs(s[i] - std::sin(x[i])) <= epsilon(dtype));
      CHECK(std::abs(c[i] - std::cos(x[i])) <= epsilon(dtype));
      CHECK(q[i] == doctest::Approx(std::tan(x[i])).epsilon(4 * epsilon(dtype)));
    }
  }
}

TEST_CASE("rounding") {
  check_function("floor", floor, std::floor, -2.9, 2.9);
  check_function("ceil", ceil, std::ceil, -2.9, 2.9);
  check_function("round", round, std::nearbyint, -2.9, 2.9);
  check_function("trunc", trunc, std::trunc, -2.9, 2.9);
  check_function("sign", sign, [](double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; });
  const Tensor halves =
      on_device(Tensor::from<float>({-2.5, -1.5, -0.5, 0.5, 1.5, inf, not_a_number}));
  const auto r = values(round(halves));
  CHECK(std::vector<double>(r.begin(), r.begin() + 6) == std::vector<double>{-2, -2, 0, 0, 2, inf});
  CHECK(std::isnan(r[6]));
  CHECK(values(sign(halves))[6] == 0);
  const Tensor whole = on_device(Tensor::from<int64_t>({-7, 0, 3}));
  CHECK(values(floor(whole)) == std::vector<double>{-7, 0, 3});
  CHECK(values(sign(whole)) == std::vector<double>{-1, 0, 1});
  CHECK(sign(whole).dtype() == i64);
}

TEST_CASE("remainder_backward_b counts the multiples that the remainder leaves out") {
  // Quotients that are rounded up to a whole number, or are one, of either sign.
  const std::vector<double> a = {1, -1, 1, 6, -6, 0.3, -7.5, 1e6, 3, 0};
  const std::vector<double> b = {0.1, 0.1, -0.1, 2, 4, 0.1, -2.5, 0.1, 0.3, 2};
  for (const DType dtype : {f64, f32, f16, bf16}) {
    CAPTURE(dtype);
    Reference p({static_cast<int64_t>(a.size())}), q = p, d = p;
    for (size_t i = 0; i < a.size(); ++i) {
      p[i] = dtype == f16 && a[i] > 6e4 ? 300 : a[i];
      q[i] = b[i];
      d[i] = i % 2 == 0 ? 1 : -2;
    }
    const auto on = [&](const Reference& r) { return r.tensor(dtype, test_device()); };
    const Reference x = Reference::of(on(p)), y = Reference::of(on(q));
    const Reference db = Reference::of(remainder_backward_b(on(p), on(q), on(d)));
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(i);
      const auto wide = static_cast<long double>(x[i]);
      const auto n = static_cast<double>(std::floor(wide / static_cast<long double>(y[i])));
      CHECK(db[i] == doctest::Approx(-d[i] * n).epsilon(epsilon(dtype)));
    }
  }
  const auto f = [](float v) { return on_device(Tensor::from<float>({v})); };
  CHECK(values(remainder_backward_b(f(1), f(0.1F), f(1))) == std::vector<double>{-9});
}

TEST_CASE("remainder has the divisor's sign") {
  const auto modulo = [](double a, double b) { return a - b * std::floor(a / b); };
  check_op({.name = "remainder",
            .inputs = {{3, 7}, {7}},
            .op = [](const Variables& v) { return remainder(v[0], v[1]); },
            .reference =
                [=](const References& in) {
                  Reference y({3, 7});
                  for (size_t i = 0; i < 21; ++i) y[i] = modulo(in[0][i], in[1][i % 7]);
                  return y;
                },
            .low = 2.1,
            .high = 3.9});
  const Tensor a = on_device(Tensor::from<int64_t>({-3, 3, -3, 7, 5}));
  const Tensor b = on_device(Tensor::from<int64_t>({2, -2, -2, 7, 0}));
  CHECK(values(remainder(a, b)) == std::vector<double>{1, -1, -1, 0, 0});
  const Tensor lowest = on_device(Tensor::from<int64_t>({std::numeric_limits<int64_t>::min()}));
  CHECK(values(remainder(lowest, -1)) == std::vector<double>{0});
  CHECK(values(remainder(on_device(Tensor::from<float>({-1.5})), 2)) == std::vector<double>{0.5});
  CHECK(std::isnan(values(remainder(on_device(Tensor::from<float>({1})), 0))[0]));
  CHECK(remainder(on_device(Tensor::from<uint8_t>({9})), 4).dtype() == u8);
}

TEST_CASE("which numbers are finite") {
  const Tensor x = on_device(Tensor::from<float>({not_a_number, inf, -inf, 0, 3e38F}));
  CHECK(values(isnan(x)) == std::vector<double>{1, 0, 0, 0, 0});
  CHECK(values(isinf(x)) == std::vector<double>{0, 1, 1, 0, 0});
  CHECK(values(isfinite(x)) == std::vector<double>{0, 0, 0, 1, 1});
  CHECK(isnan(x).dtype() == boolean);
  CHECK(values(isfinite(on_device(Tensor::from<int64_t>({1, -5})))) == std::vector<double>{1, 1});
}

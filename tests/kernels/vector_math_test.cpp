#include <bs/kernels/cpu/normal_math.h>
#include <bs/kernels/cpu/vector_functions.h>
#include <doctest/doctest.h>

#include <limits>
#include <vector>

using namespace bs::cpu;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Distance between floats next to `value`, in double; below the normal range, the smallest float.
double ulp(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::max(std::ldexp(1.0, exponent - 24), 0x1p-149);
}

/// Largest error, in ulp of the exact result, over floats of all magnitudes in [low, high].
template <class F>
double worst(F f, double (*exact)(double), float low, float high) {
  double top = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffU; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(x);
    const double actual = f(x);
    if (std::isinf(static_cast<float>(expected))) {
      CHECK(actual == static_cast<float>(expected));
    } else {
      top = std::max(top, std::abs(actual - expected) / ulp(expected));
    }
  }
  return top;
}

double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

}  // namespace

TEST_CASE("vector mathematics is as exact as it says") {
  CHECK(worst([](float x) { return math::exp(x); }, std::exp, -infinity, infinity) < 1.1);
  CHECK(worst([](float x) { return math::log(x); }, std::log, 0, infinity) < 1.1);
  CHECK(worst([](float x) { return math::tanh(x); }, std::tanh, -infinity, infinity) < 1.5);
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(worst([](float x) { return math::sigmoid(x); }, logistic, -87, infinity) < 2.5);
}

TEST_CASE("vector functions are as exact as they say") {
  constexpr float most = math::most_turned;
  CHECK(worst([](float x) { return math::sin(x); }, std::sin, -most, most) < 1.6);
  CHECK(worst([](float x) { return math::cos(x); }, std::cos, -most, most) < 1.6);
  CHECK(worst([](float x) { return math::tan(x); }, std::tan, -most, most) < 2.6);
  CHECK(worst([](float x) { return math::erf(x); }, std::erf, -infinity, infinity) < 1.1);
  CHECK(worst([](float x) { return math::log1p(x); }, std::log1p, -1, infinity) < 2.4);
  CHECK(worst([](float x) { return math::expm1(x); }, std::expm1, -infinity, infinity) < 1.6);
}

TEST_CASE("the normal distribution is as exact as it says") {
  for (double x = -16; x <= 16; x += 0x1.234p-10) {
    const auto rounded = static_cast<float>(x);
    const double expected = phi(rounded);
    const double error = std::abs(math::normal(rounded).cdf - expected);
    CHECK(error < 1.2e-7);
    if (x > -1) CHECK(error < 5e-7 * expected);
    if (x > -6) CHECK(error < 2e-6 * expected);
    const double alone = std::abs(math::normal_cdf(rounded) - expected);
    CHECK(alone < 2.1e-7);
    if (x > -1) CHECK(alone < 5e-7 * expected);
    if (x > -6) CHECK(alone < 2e-6 * expected);
    const double coarse = std::abs(math::coarse_normal_cdf(rounded) - expected);
    if (x > -12) CHECK(coarse < 1e-5 * (1 + x * x / 4) * expected);
    const double density = std::exp(-0.5 * double{rounded} * rounded) * 0.39894228040143268;
    CHECK(std::abs(math::normal(rounded).pdf - density) < 1e-7);
  }
}

TEST_CASE("powers and remainders of vectors are as exact as they say") {
  double top = 0, coarse = 0;
  uint32_t state = 1;
  const auto drawn = [&] { return std::bit_cast<float>(state = state * 1664525U + 1013904223U); };
  for (int i = 0; i < 1000000; ++i) {
    const float any = drawn(), other = drawn();
    const float a = i % 2 == 0 ? std::fabs(any) : 1.0F + 0x1p-24F * static_cast<float>(state >> 9);
    const float b = i % 3 == 0 ? other : 100.0F * std::sin(other);
    if (math::holds_pow(a, b)) {
      const double expected = std::pow(double{a}, double{b}), actual = math::pow(a, b);
      if (std::isinf(static_cast<float>(expected))) {
        CHECK(actual == static_cast<float>(expected));
      } else {
        top = std::max(top, std::abs(actual - expected) / ulp(expected));
      }
      const double log = std::log(double{a}), slope = expected * log, size = std::abs(slope);
      if (size > 0x1p-126 && size < 0x1p126 && expected < 0x1p126)
        coarse = std::max(coarse, std::abs(math::coarse_pow_log(a, b) - slope) / size /
                                      (1 + std::abs(b * log / std::log(2.0))));
    }
    const float divisor = i % 4 == 0 ? b : std::ldexp(any, i % 40 - 20);
    if (!math::holds_remainder(any, divisor)) continue;
    const float rest = math::remainder(any, divisor), expected = std::fmod(any, divisor);
    CHECK(std::bit_cast<uint32_t>(rest) == std::bit_cast<uint32_t>(expected));
  }
  CHECK(top < 1.2);
  CHECK(coarse < 5e-7);
}

TEST_CASE("vector functions at the ends") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float (*f)(float) :
       {static_cast<float (*)(float)>(math::sin), math::tan, math::erf, math::log1p, math::expm1}) {
    CHECK(std::isnan(f(nan)));
    CHECK(f(0.0F) == 0);
    CHECK(std::signbit(f(-0.0F)));
    CHECK(f(0x1p-149F) == 0x1p-149F);
  }
  CHECK(math::cos(0.0F) == 1);
  CHECK(std::isnan(math::sin(infinity)));
  CHECK(std::isnan(math::cos(-infinity)));
  CHECK(std::isnan(math::tan(infinity)));
  CHECK(math::erf(infinity) == 1);
  CHECK(math::erf(-infinity) == -1);
  CHECK(math::log1p(infinity) == infinity);
  CHECK(math::log1p(-1.0F) == -infinity);
  CHECK(std::isnan(math::log1p(-1.5F)));
  CHECK(std::isnan(math::log1p(-infinity)));
  CHECK(math::expm1(infinity) == infinity);
  CHECK(math::expm1(-infinity) == -1);
}

TEST_CASE("vector mathematics at the ends") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(math::exp(nan)));
  CHECK(std::isnan(math::log(nan)));
  CHECK(std::isnan(math::tanh(nan)));
  CHECK(std::isnan(math::sigmoid(nan)));
  CHECK(std::isnan(math::normal(nan).cdf));
  CHECK(math::exp(infinity) == infinity);
  CHECK(math::exp(-infinity) == 0);
  CHECK(math::exp(0.0F) == 1);
  CHECK(math::log(infinity) == infinity);
  CHECK(math::log(0.0F) == -infinity);
  CHECK(math::log(-0.0F) == -infinity);
  CHECK(math::log(1.0F) == 0);
  CHECK(std::isnan(math::log(-1.0F)));
  CHECK(std::isnan(math::log(-infinity)));
  CHECK(math::tanh(infinity) == 1);
  CHECK(math::tanh(-infinity) == -1);
  CHECK(std::signbit(math::tanh(-0.0F)));
  CHECK(math::sigmoid(infinity) == 1);
  CHECK(math::sigmoid(-infinity) == 0);
  CHECK(std::isnan(math::normal_cdf(nan)));
  CHECK(math::normal_cdf(infinity) == 1);
  CHECK(math::normal_cdf(-infinity) == 0);
  CHECK(std::isnan(math::coarse_normal_cdf(nan)));
  CHECK(math::normal(infinity).cdf == 1);
  CHECK(math::normal(-infinity).cdf == 0);
  CHECK(math::coarse_normal_cdf(infinity) == 1);
  CHECK(math::coarse_normal_cdf(-infinity) == 0);
}

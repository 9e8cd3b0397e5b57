#include <bs/kernels/cpu/vector_math.h>
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

TEST_CASE("the normal distribution is as exact as it says") {
  for (double x = -16; x <= 16; x += 0x1.234p-10) {
    const auto rounded = static_cast<float>(x);
    const double expected = phi(rounded);
    const double error = std::abs(math::normal(rounded).cdf - expected);
    CHECK(error < 1.2e-7);
    if (x > -1) CHECK(error < 5e-7 * expected);
    if (x > -6) CHECK(error < 2e-6 * expected);
    const double coarse = std::abs(math::coarse_normal_cdf(rounded) - expected);
    if (x > -12) CHECK(coarse < 1e-5 * (1 + x * x / 4) * expected);
    const double density = std::exp(-0.5 * double{rounded} * rounded) * 0.39894228040143268;
    CHECK(std::abs(math::normal(rounded).pdf - density) < 1e-7);
  }
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
  CHECK(std::isnan(math::coarse_normal_cdf(nan)));
  CHECK(math::normal(infinity).cdf == 1);
  CHECK(math::normal(-infinity).cdf == 0);
  CHECK(math::coarse_normal_cdf(infinity) == 1);
  CHECK(math::coarse_normal_cdf(-infinity) == 0);
}

#include <bs/kernels/copy.h>
#include <bs/kernels/exponential_clock.h>
#include <bs/kernels/multinomial.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
Tensor row(const std::vector<double>& weights, DType dtype) {
  Reference x({static_cast<int64_t>(weights.size())});
  x.values = weights;
  return x.tensor(dtype, test_device());
}

}  // namespace

TEST_CASE("multinomial") {
  const Tensor weights = row({0, 1, 3, 0}, f32);
  Generator generator(7);
  const auto drawn = values(multinomial(weights, 4000, {.replacement = true}, generator));
  const auto of_2 = std::count(drawn.begin(), drawn.end(), 2.0);
  const auto of_1 = std::count(drawn.begin(), drawn.end(), 1.0);
  CHECK(of_1 + of_2 == 4000);
  CHECK(std::abs(static_cast<double>(of_2) - 3000) < 5 * std::sqrt(4000 * 0.75 * 0.25));
  CHECK(multinomial(weights, 0).shape() == Shape{0});
  CHECK(multinomial(Tensor::empty({0, 3}, f32, test_device()), 2).shape() == Shape{0, 2});
  CHECK_THROWS_WITH_AS(multinomial(weights, 5),
                       "multinomial: 5 draws from 4 classes without replacement", Error);
  CHECK_THROWS_WITH_AS(multinomial(Tensor::empty({2}, i64), 1),
                       "multinomial: dtype i64 is not supported; expected f64, f32, f16 or bf16",
                       Error);
  if (test_device().is_cpu())
    CHECK_THROWS_WITH_AS(multinomial(row({1, -2}, f32), 1), "multinomial: weights from -2 to 1",
                         Error);
}

TEST_CASE("multinomial refuses rows of zeros, which no device but the CPU looks for") {
  if (!test_device().is_cpu()) return;
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const bool replacement : {false, true}) {
      CHECK_THROWS_WITH_AS(multinomial(row({0, 0}, dtype), 1, {replacement}),
                           "multinomial: row 0 of weights [2] has no class of a weight above 0",
                           Error);
      const Tensor rows = row({0, 3, 1, 0, 0, 0, 2, 2}, dtype).view({2, 2, 2});
      CHECK_THROWS_WITH_AS(
          multinomial(rows, 1, {replacement}),
          "multinomial: row 2 of weights [2, 2, 2] has no class of a weight above 0", Error);
    }
  // What no weight is left for comes last.
  const auto drawn = values(multinomial(row({0, 0, 1, 0}, f32), 3));
  CHECK(drawn[0] == 2);
}

TEST_CASE("multinomial draws each of many equal classes, however large their weights") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double weight : {dtype == f16 ? 6e4 : 1e38, 1.0, dtype == f16 ? 6e-8 : 1e-38}) {
      const int64_t rows = 8000;
      Generator generator(3);
      const Tensor p = row(std::vector<double>(8, weight), dtype).expand({rows, 8});
      const auto drawn = values(multinomial(p, 1, {}, generator));
      for (int c = 0; c < 8; ++c) {
        const auto count = static_cast<double>(std::count(drawn.begin(), drawn.end(), c));
        CHECK(std::abs(count - 1000) < 5 * std::sqrt(rows / 8.0 * 7 / 8));
      }
    }
}

// After the first, the others come with the odds that are left.
TEST_CASE("multinomial without replacement draws in the right proportions") {
  const int64_t rows = 20000;
  const std::vector<double> weights = {1, 0, 2, 5, 0};
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const double scale : {1.0, dtype == f16 ? 0.125 : 0x1p-130, dtype == f16 ? 4 : 0x1p60}) {
      std::vector<double> scaled = weights;
      for (double& w : scaled) w *= scale;
      Generator generator(7);
      const Tensor p = row(scaled, dtype).expand({rows, 5});
      const auto drawn = values(multinomial(p, 3, {}, generator));
      int pairs[5][5] = {};
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        const auto* const d = drawn.data() + 3 * r;
        ++pairs[static_cast<size_t>(d[0])][static_cast<size_t>(d[1])];
        REQUIRE(d[0] + d[1] + d[2] == 5);  // 0, 2 and 3 in some order
      }
      for (size_t i : {0, 2, 3})
        for (size_t j : {0, 2, 3}) {
          if (i == j) continue;
          const double odds = weights[i] / 8 * weights[j] / (8 - weights[i]);
          const double n = static_cast<double>(rows);
          CHECK(std::abs(pairs[i][j] - n * odds) < 5 * std::sqrt(n * odds * (1 - odds)));
        }
    }
}

TEST_CASE("multinomial draws the same on either device, where vectors begin and where not") {
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t classes : {1, 7, 300, 4096, 5003})
      for (const int64_t skipped : {0, 1}) {
        const Reference x = random_reference({3 * classes + 1}, 5, 0, 2);
        const Tensor whole = x.tensor(dtype, test_device());
        const Tensor weights = whole.slice(0, skipped, skipped + 3 * classes).view({3, classes});
        const int64_t count = std::min<int64_t>(classes, 16);
        Generator g(11), again(11);
        const auto drawn = values(multinomial(weights, count, {}, g));
        CHECK(values(multinomial(weights.to(Device::cpu()), count, {}, again)) == drawn);
      }
}

TEST_CASE("exponential clocks have the mean of their rate, and never stand still") {
  double sum = 0, precise = 0;
  constexpr uint32_t n = 1 << 16;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t word = i << 16 | 0x8000U;
    sum += std::pow(exponential_clock_root(word, 2.0F), 2);
    precise += exponential_clock(uint64_t{word} << 32, 2.0);
  }
  CHECK(std::abs(sum / n - 0.5) < 1e-4);
  CHECK(std::abs(precise / n - 0.5) < 1e-4);
  CHECK(exponential_clock_root(~0U, 1.0F) > 0);
  CHECK(exponential_clock(~uint64_t{0}, 1.0) > 0);
  CHECK(std::isfinite(exponential_clock_root(0U, 0x1p-149F)));
  CHECK(exponential_clock_root(~0U, std::numeric_limits<float>::max()) > 0x1p-126F);
  CHECK(std::isinf(exponential_clock_root(7U, 0.0F)));
  // Of any weight to a few units in the last place, which the double of the same time tells.
  for (int exponent = -149; exponent <= 127; ++exponent)
    for (const uint32_t word : {0U, 7U, 0x80000000U, 0xfffffff0U, ~0U}) {
      const double time = std::pow(double{exponential_clock_root(word, 1.0F)}, 2);
      const double root = exponential_clock_root(word, std::ldexp(1.0F, exponent));
      CHECK(root == doctest::Approx(std::sqrt(std::ldexp(time, -exponent))).epsilon(1e-6));
    }
}

#include <bs/kernels/distribution.h>
#include <bs/kernels/random.h>
#include <bs/lib/philox.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

using namespace bs;
using namespace bs::test;

namespace {

const std::vector<DType> floating = {f64, f32, f16, bf16};

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

/// Largest distance between the sample's distribution function and the one given (Kolmogorov and
/// Smirnov), times sqrt(n): above 1.95 with probability 0.001.
double distance(std::vector<double> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double worst = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    const double expected = cdf(sample[i]);
    worst = std::max(
        {worst, static_cast<double>(i + 1) / n - expected, expected - static_cast<double>(i) / n});
  }
  return worst * std::sqrt(n);
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (double v : x) m.mean += v / n;
  for (double v : x) m.variance += (v - m.mean) * (v - m.mean) / n;
  for (double v : x) m.skew += std::pow((v - m.mean) / std::sqrt(m.variance), 3) / n;
  for (double v : x) m.kurtosis += std::pow((v - m.mean) / std::sqrt(m.variance), 4) / n;
  return m;
}

/// Checks that this device draws what the CPU draws.
void same(const std::function<Tensor(Device, Generator&)>& draw) {
  Generator a(7);
  Generator b(7);
  CHECK(values(draw(Device::cpu(), a)) == values(draw(test_device(), b)));
}

}  // namespace

TEST_CASE("rand is uniform") {
  Generator g(1);
  const auto x = values(rand({200, 1001}, f32, test_device(), g));
  CHECK(*std::min_element(x.begin(), x.end()) >= 0);
  CHECK(*std::max_element(x.begin(), x.end()) < 1);
  CHECK(distance(x, [](double v) { return v; }) < 1.95);
  CHECK(distance(values(rand({100000}, f64, test_device(), g)), [](double v) { return v; }) < 1.95);
  for (DType dtype : floating) {
    const auto y = values(rand({100000}, dtype, test_device(), g));
    CHECK(*std::max_element(y.begin(), y.end()) < 1);
    CHECK(std::abs(moments(y).mean - 0.5) < 4 * std::sqrt(1 / 12.0 / 1e5) + 0x1p-9);
    CHECK(std::abs(moments(y).variance - 1 / 12.0) < 1e-3);
  }
}

TEST_CASE("uniform_ stays within its bounds when rounding") {
  Generator g(2);
  for (DType dtype : floating) {
    const Tensor x = Tensor::empty({100000}, dtype, test_device());
    uniform_(x, 1, 1.25, g);
    const auto v = values(x);
    CHECK(*std::min_element(v.begin(), v.end()) >= 1);
    CHECK(*std::max_element(v.begin(), v.end()) < 1.25);
    uniform_(x, -3, -1, g);
    CHECK(std::abs(moments(values(x)).mean + 2) < 0.02);
  }
}

TEST_CASE("randn is normal") {
  Generator g(3);
  for (DType dtype : {f64, f32}) {
    const auto x = values(randn({333, 601}, dtype, test_device(), g));
    const double n = 333 * 601;
    const Moments m = moments(x);
    // Four standard errors each.
    CHECK(std::abs(m.mean) < 4 / std::sqrt(n));
    CHECK(std::abs(m.variance - 1) < 4 * std::sqrt(2 / n));
    CHECK(std::abs(m.skew) < 4 * std::sqrt(6 / n));
    CHECK(std::abs(m.kurtosis - 3) < 4 * std::sqrt(24 / n));
    CHECK(distance(x, normal_cdf) < 1.95);
    // Neighbours, which share a draw, are not correlated.
    double covariance = 0;
    for (size_t i = 0; i + 1 < x.size(); i += 2) covariance += x[i] * x[i + 1] / (n / 2);
    CHECK(std::abs(covariance) < 4 / std::sqrt(n / 2));
  }
  for (DType dtype : {f16, bf16})
    CHECK(std::abs(moments(values(randn({100000}, dtype, test_device(), g))).variance - 1) < 0.02);
  const Tensor x = Tensor::empty({100000}, f32, test_device());
  normal_(x, 5, 0.5, g);
  CHECK(std::abs(moments(values(x)).mean - 5) < 4 * 0.5 / std::sqrt(1e5));
  CHECK(std::abs(moments(values(x)).variance - 0.25) < 0.01);
  normal_(x, 2, 0, g);
  for (double v : values(x)) REQUIRE(v == 2);
}

TEST_CASE("randint gives every integer equally often") {
  Generator g(4);
  for (DType dtype : {i64, i32, u8, f32, bf16}) {
    std::vector<double> count(10);
    for (double v : values(randint(3, 13, {100000}, dtype, test_device(), g)))
      count.at(static_cast<size_t>(v) - 3) += 1;
    double chi_square = 0;
    for (double c : count) chi_square += (c - 1e4) * (c - 1e4) / 1e4;
    CHECK(chi_square < 27.9);  // 9 degrees of freedom: exceeded with probability 0.001
  }
  const Tensor wide = randint(-(int64_t{1} << 62), int64_t{1} << 62, {1000}, i64, test_device(), g);
  CHECK(std::abs(moments(values(wide)).mean) < 4 * 0x1p62 / std::sqrt(3 * 1000.0));
  using Limits = std::numeric_limits<int64_t>;
  const Tensor any = randint(Limits::min(), Limits::max(), {1000}, i64, test_device(), g);
  CHECK(std::abs(moments(values(any)).mean) < 4 * 0x1p63 / std::sqrt(3 * 1000.0));
  for (double v : values(randint(7, 8, {100}, i32, test_device(), g))) REQUIRE(v == 7);
}

TEST_CASE("bernoulli") {
  Generator g(5);
  for (double p : {0.0, 0.3, 1.0})
    for (DType dtype : {f32, boolean, f16}) {
      const double mean = moments(values(bernoulli(p, {100000}, dtype, test_device(), g))).mean;
      CHECK(std::abs(mean - p) <= 4 * std::sqrt(p * (1 - p) / 1e5) + 1e-9);
    }
}

TEST_CASE("permutation") {
  Generator g(6);
  for (int64_t n : {0, 1, 2, 1000}) {
    auto p = values(permutation(n, g));
    std::sort(p.begin(), p.end());
    for (size_t i = 0; i < p.size(); ++i) REQUIRE(p[i] == static_cast<double>(i));
  }
  std::vector<double> count(6);  // the six orders of three things
  for (int i = 0; i < 6000; ++i) {
    const auto p = values(permutation(3, g));
    count.at(static_cast<size_t>(2 * p[0] + (p[1] > p[2]))) += 1;
  }
  for (double c : count) CHECK(std::abs(c - 1000) < 4 * std::sqrt(6000 / 6.0 * 5 / 6));
}

TEST_CASE("random numbers depend on the seed, the operation and the index alone") {
  Generator a(42);
  Generator b(42);
  for (DType dtype : floating) {
    const auto whole = values(randn({100007}, dtype, test_device(), a));
    const int team = threads();
    set_threads(team == 1 ? 3 : 1);
    CHECK(values(randn({100007}, dtype, test_device(), b)) == whole);
    set_threads(team);
    const RandomState before = a.state();
    const auto first = values(rand({5000}, dtype, test_device(), a));
    const auto next = values(rand({5000}, dtype, test_device(), a));
    CHECK(first != next);
    a.set_state(before);
    auto longer = values(rand({7001}, dtype, test_device(), a));
    longer.resize(5000);
    CHECK(longer == first);
    b.set_state(a.state());
  }
}

TEST_CASE("random numbers are the same on every device") {
  for (DType dtype : floating) {
    same([=](Device d, Generator& g) { return rand({100003}, dtype, d, g); });
    same([=](Device d, Generator& g) { return randn({100003}, dtype, d, g); });
    same([=](Device d, Generator& g) {
      const Tensor x = Tensor::empty({100003}, dtype, d);
      normal_(x, 0.1, 0.02, g);
      return x;
    });
  }
  for (DType dtype : {i64, i32, u8, boolean, f64, f32, f16, bf16}) {
    same([=](Device d, Generator& g) { return randint(0, 2, {100003}, dtype, d, g); });
    for (const double p : {0.0, 0x1p-32, 0.4, 1.0})
      same([=](Device d, Generator& g) { return bernoulli(p, {100003}, dtype, d, g); });
  }
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  for (const auto& [low, high] : {std::pair<int64_t, int64_t>{-70000, 90000},
                                  {-most, 0},
                                  {0, most},
                                  {1, most},
                                  {-most, most},
                                  {most - 1, most + 3},
                                  {-most - 1, 5},
                                  {int64_t{1} << 40, (int64_t{1} << 40) + 9}})
    same([low = low, high = high](Device d, Generator& g) {
      return randint(low, high, {1003}, i64, d, g);
    });
}

TEST_CASE("uniform numbers are the same on every device") {
  for (DType dtype : floating) {
    // Those that f32 computes as a double does, and those next to them that it does not.
    for (const auto& [low, high] : {std::pair{-0.3, 0.7},
                                    {0.0, 3.0},
                                    {0.0, 0.7},
                                    {0.0, 0x1.8p-60},
                                    {0.0, 1e-40},
                                    {-1.0, 1.0},
                                    {1.0, 1.25},
                                    {-0x1p-20, 3.0},
                                    {0x1p-30, 0x1p-30 + 0x1p-31},
                                    {-0x1p40, 0x1p40},
                                    {0x1p-140, 1 + 0x1p-140},
                                    {1.0, 1 + 0x1p-23},
                                    {-3.0, 0x1.8p100}})
      same([=, low = low, high = high](Device d, Generator& g) {
        const Tensor x = Tensor::empty({100003}, dtype, d);
        uniform_(x, low, high, g);
        return x;
      });
    for (const int64_t first : {1, 2, 4})
      for (const int64_t count : {0, 1, 7, 8, 9, 1001})
        same([=](Device d, Generator& g) {
          const Tensor x = Tensor::empty({first + count}, dtype, d);
          uniform_(x.slice(0, first, first + count), -2, 2, g);
          return x.slice(0, first, first + count);
        });
  }
}

TEST_CASE("rand follows from Philox as documented") {
  Generator g(9);
  g.set_state({9, 3});
  const auto x = values(rand({8}, f32, test_device(), g));
  for (size_t i = 0; i < 8; ++i)
    CHECK(x[i] == static_cast<double>(philox(9, i / 4, 3).word[i % 4] >> 8) * 0x1p-24);
}

TEST_CASE("normal numbers of 32 bits are Box and Muller's of two words") {
  const auto check = [](uint32_t radius, uint32_t angle) {
    // Beside 1 the logarithm is of what is missing to 1.
    const double missing = (4294967295.0 - radius) * 0x1p-32;
    const double r = std::sqrt(-2 * std::log1p(-missing));
    const double turn = 2 * std::acos(-1.0) * 0x1p-32 * angle;
    const Pair<float> p = normal_pair(radius, angle);
    CHECK(std::abs(p.first - r * std::cos(turn)) <= r * 0x1p-21);
    CHECK(std::abs(p.second - r * std::sin(turn)) <= r * 0x1p-21);
  };
  // About the ends, and where a quarter turn or the way to the logarithm changes.
  for (const uint32_t middle : {0U, 1U << 29, 1U << 30, 1U << 31, 3U << 30, 0xb504f333U})
    for (uint32_t i = 0; i < 200; ++i) check(middle + i - 100, middle + 100 - i);
  for (uint64_t block = 0; block < 20000; ++block) {
    const PhiloxBlock b = philox(9, block, 3);
    check(b.word[0], b.word[1]);
  }
  Generator g(9);
  g.set_state({9, 3});
  const auto x = values(randn({8}, f32, test_device(), g));
  for (size_t i = 0; i < 8; i += 2) {
    const PhiloxBlock b = philox(9, i / 4, 3);
    const Pair<float> p = normal_pair(b.word[i % 4], b.word[i % 4 + 1]);
    CHECK(x[i] == static_cast<double>(p.first));
    CHECK(x[i + 1] == static_cast<double>(p.second));
  }
}

TEST_CASE("random operations refuse what they cannot do") {
  CHECK_THROWS_WITH_AS(rand({2}, i32),
                       "uniform_: dtype i32 is not supported; expected f64, f32, "
                       "f16 or bf16",
                       Error);
  CHECK_THROWS_WITH_AS(uniform_(Tensor::empty({2}, f32), 1, 1), "uniform_: no numbers in [1, 1)",
                       Error);
  CHECK_THROWS_WITH_AS(uniform_(Tensor::empty({4, 3}, f32).transpose(0, 1), 0, 1),
                       "uniform_: shape [3, 4] with strides [1, 3] has gaps", Error);
  CHECK_THROWS_WITH_AS(normal_(Tensor::empty({2}, f32), 0, -1), "normal_: deviation -1 is negative",
                       Error);
  CHECK_THROWS_WITH_AS(randint(3, 3, {1}), "randint: no integers in [3, 3)", Error);
  CHECK_THROWS_WITH_AS(randint(0, 300, {1}, u8),
                       "randint: u8 does not hold all integers of [0, 300)", Error);
  CHECK_THROWS_WITH_AS(randint(-1, 2, {1}, boolean),
                       "randint: bool does not hold all integers of [-1, 2)", Error);
  CHECK_THROWS_WITH_AS(bernoulli(1.5, {1}), "bernoulli: probability 1.5 is not within [0, 1]",
                       Error);
  CHECK_THROWS_WITH_AS(threshold(std::nan("")), "threshold: probability nan is not within [0, 1]",
                       Error);
  CHECK_THROWS_WITH_AS(permutation(-1), "permutation: of -1 numbers", Error);
}

#include <bs/kernels/copy.h>
#include <bs/kernels/unique.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
template <class T>
Tensor vector(std::initializer_list<T> v) {
  return Tensor::from<T>(v).to(test_device());
}

}  // namespace

TEST_CASE("unique") {
  const Tensor x = vector<int64_t>({3, 1, 3, 7, 1, 3}).view({2, 3});
  const Unique u = unique(x);
  CHECK(values(u.values) == std::vector<double>{1, 3, 7});
  CHECK(values(u.counts) == std::vector<double>{2, 3, 1});
  CHECK(values(u.inverse) == std::vector<double>{1, 0, 1, 2, 0, 1});
  CHECK(u.inverse.shape() == Shape{2, 3});
  CHECK(values(unique(x.transpose(0, 1)).inverse) == std::vector<double>{1, 2, 0, 0, 1, 1});
  CHECK(unique(Tensor::empty({0}, f32, test_device())).values.numel() == 0);
  CHECK(values(unique(vector<bool>({true, false, true})).counts) == std::vector<double>{1, 2});
}

TEST_CASE("unique: each NaN is a value of its own, and zeros are one") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f64, f32, f16, bf16}) {
    Reference x({8});
    x.values = {nan, 1, -0.0, nan, 0, infinity, -infinity, 0};
    const Unique u = unique(x.tensor(dtype, test_device()));
    const auto v = values(u.values);
    REQUIRE(v.size() == 6);
    CHECK(std::vector<double>(v.begin(), v.end() - 2) ==
          std::vector<double>{-infinity, 0, 1, infinity});
    CHECK((std::isnan(v[4]) && std::isnan(v[5])));
    CHECK(std::signbit(v[1]));  // the first of them
    CHECK(values(u.counts) == std::vector<double>{1, 3, 1, 1, 1, 1});
    CHECK(values(u.inverse) == std::vector<double>{4, 2, 1, 5, 1, 3, 0, 1});
  }
}

TEST_CASE("unique of millions, of which few differ") {
  const int64_t n = large_on_gpu((1 << 22) + 77, 5003);
  for (const DType dtype : {f32, bf16}) {
    Reference x({n});
    for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * (i % 5 + 1) % 211);
    const Unique u = unique(x.tensor(dtype, test_device()));
    CHECK(u.values.numel() == 211);
    CHECK(values(u.values)[210] == 210);
    CHECK(values(u.inverse) == x.values);
  }
}

TEST_CASE("unique of many, by a map") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean})
    for (const int64_t n : {1, 31, 16384, 16385, 70001}) {
      Reference x({n});
      for (size_t i = 0; i < x.values.size(); ++i) {
        const auto number = static_cast<double>(i * (i % 7 + 1) % 30011);
        x[i] = is_floating(dtype) ? number / 8 - 900 : std::fmod(number, dtype == u8 ? 256 : 40000);
      }
      const Tensor t = x.tensor(dtype, test_device());
      const Reference seen = Reference::of(t);
      std::map<double, double> counts;
      for (double v : seen.values) ++counts[v];
      std::vector<double> expected, expected_counts;
      for (const auto& [value, count] : counts) {
        expected.push_back(value);
        expected_counts.push_back(count);
      }
      const Unique u = unique(t);
      CHECK(values(u.values) == expected);
      CHECK(values(u.counts) == expected_counts);
      const auto inverse = values(u.inverse);
      bool same = true;
      for (size_t i = 0; i < inverse.size(); ++i)
        same = same && expected[static_cast<size_t>(inverse[i])] == seen[i];
      CHECK_MESSAGE(same, to_string(dtype));
    }
}

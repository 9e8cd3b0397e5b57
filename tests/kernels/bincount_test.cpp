#include <bs/kernels/bincount.h>
#include <bs/kernels/copy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <cstdint>

using namespace bs;
using namespace bs::test;

namespace {

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
template <class T>
Tensor vector(const std::vector<T>& v) {
  return Tensor::from<T>(v, {static_cast<int64_t>(v.size())}).to(test_device());
}

template <class T>
void check_counts(int64_t count, int64_t bins, int64_t skipped) {
  std::vector<T> numbers;
  std::vector<double> expected(static_cast<size_t>(bins));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = i == 0 ? bins - 1 : i * (i % 5 + 1) % bins;
    numbers.push_back(static_cast<T>(number));
    if (i >= skipped) ++expected[static_cast<size_t>(number)];
  }
  const Tensor counts = bincount(vector(numbers).slice(0, skipped, count), {}, bins);
  CHECK(values(counts) == expected);
}

}  // namespace

TEST_CASE("bincount") {
  const Tensor x = vector<int64_t>({3, 1, 3, 7, 1, 3}).view({2, 3});
  CHECK(values(bincount(x)) == std::vector<double>{0, 2, 0, 3, 0, 0, 0, 1});
  CHECK(values(bincount(x.transpose(0, 1))) == std::vector<double>{0, 2, 0, 3, 0, 0, 0, 1});
  CHECK(values(bincount(vector<int64_t>({1, 1}), {}, 4)) == std::vector<double>{0, 2, 0, 0});
  CHECK(values(bincount(vector<int64_t>({1, 0, 1}), vector<float>({1, 2, 4}))) ==
        std::vector<double>{2, 5});
  const Tensor nothing = Tensor::empty({0}, i32, test_device());
  CHECK(values(bincount(nothing, {}, 2)) == std::vector<double>{0, 0});
  CHECK(bincount(nothing, Tensor::empty({0}, f32, test_device())).dtype() == f32);
  CHECK_THROWS_WITH_AS(bincount(vector<int64_t>({-1})), "bincount: -1 is negative", Error);
  CHECK_THROWS_WITH_AS(bincount(vector<int32_t>({5, -7, 9000})), "bincount: -7 is negative", Error);
  CHECK_THROWS_WITH_AS(bincount(vector<int64_t>({INT64_MAX})), "bincount: 9.22337e+18 is too large",
                       Error);
  CHECK_THROWS_WITH_AS(bincount(vector<float>({1})),
                       "bincount: dtype f32 is not supported; expected i64 or i32", Error);
  CHECK_THROWS_WITH_AS(bincount(x, vector<float>({1})), "bincount: shapes [2, 3] and [1] differ",
                       Error);
}

TEST_CASE("bincount of few and of many bins, where vectors begin and where not") {
  for (const int64_t bins : {1, 5, 8191, 8192, 8193, 20000})
    for (const int64_t count : {1, 2, 3, 4097, 300007})
      for (const int64_t skipped : {0, 1}) {
        if (skipped == count) continue;
        CAPTURE(bins);
        CAPTURE(count);
        check_counts<int64_t>(count, bins, skipped);
        check_counts<int32_t>(count, bins, skipped);
      }
}

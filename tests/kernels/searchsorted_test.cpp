#include <bs/kernels/scan.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {
std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }
Tensor vector(const std::vector<float>& v) {
  return Tensor::from<float>(v, {static_cast<int64_t>(v.size())}).to(test_device());
}
}  // namespace

TEST_CASE("searchsorted") {
  const Tensor sorted = vector({1, 2, 2, 5});
  const Tensor x = vector({0, 1, 2, 4, 5, 9});
  CHECK(values(searchsorted(sorted, x)) == std::vector<double>{0, 0, 1, 3, 3, 4});
  CHECK(values(searchsorted(sorted, x, true)) == std::vector<double>{0, 1, 3, 3, 4, 4});
  CHECK_THROWS_WITH_AS(searchsorted(sorted, Tensor::empty({2, 2}, f32, test_device())),
                       "searchsorted: values [2, 2] for sorted [4]", Error);
}

TEST_CASE("searchsorted of rows of every length, whose elements repeat") {
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32})
    // At last up to, between and beyond rows of each width that shared memory holds, with gaps.
    for (const int64_t n :
         {0, 1, 2, 31, 64, 100, 1000, 2047, 2048, 4096, 5772, 5773, 11904, 12000, 23809, 25000})
      for (const int64_t m : {1, 255, 256, 1500, 5000}) {
        const int64_t rows = n > 5000 ? 1 : 3, several = std::max<int64_t>(n / 100, 1);
        Reference sorted({rows, n}), x({rows, m});
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < n; ++i)
            sorted.at({r, i}) = static_cast<double>(i / several * 2 - r);
          for (int64_t e = 0; e < m; ++e) x.at({r, e}) = static_cast<double>(e * 37 % 220 - 4);
        }
        const Tensor keys = sorted.tensor(dtype, test_device());
        const Tensor wanted = x.tensor(dtype, test_device());
        for (const bool right : {false, true}) {
          std::vector<double> expected;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t e = 0; e < m; ++e) {
              const auto begin = sorted.values.begin() + r * n, end = begin + n;
              const double value = x.at({r, e});
              const auto at =
                  right ? std::upper_bound(begin, end, value) : std::lower_bound(begin, end, value);
              expected.push_back(static_cast<double>(at - begin));
            }
          CAPTURE(n);
          CAPTURE(m);
          REQUIRE_MESSAGE(values(searchsorted(keys, wanted, right)) == expected, to_string(dtype));
        }
      }
}

TEST_CASE("searchsorted beside what is not finite") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> row = {-inf, -inf, -1, 0, 0, 7, inf, inf, nan, nan};
  const std::vector<float> one = {nan, -inf, -2, 0, 8, inf};
  std::vector<float> wanted;
  std::vector<double> below, at;
  for (int64_t e = 0; e < 300; ++e) {  // as many as share a row that is held
    wanted.push_back(one[static_cast<size_t>(e % 6)]);
    below.push_back(std::vector<double>{0, 0, 2, 3, 6, 6}[static_cast<size_t>(e % 6)]);
    at.push_back(std::vector<double>{0, 2, 2, 5, 6, 8}[static_cast<size_t>(e % 6)]);
  }
  const Tensor keys = vector(row), x = vector(wanted);
  CHECK(values(searchsorted(keys, x)) == below);
  CHECK(values(searchsorted(keys, x, true)) == at);
}

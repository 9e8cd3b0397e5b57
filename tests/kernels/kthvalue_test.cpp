// The k-th smallest of rows that are selected, ranked or sorted.
#include <bs/kernels/copy.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Compares values and positions with those of a stable sort, in which NaN comes last.
void check_rows(const Reference& x, DType dtype) {
  const Tensor t = x.tensor(dtype, test_device());
  const Reference seen = Reference::of(t);
  const int64_t rows = x.shape[0], n = x.shape[1];
  for (const int64_t k : {int64_t{1}, int64_t{2}, (n + 1) / 2, n - 1, n}) {
    if (k < 1 || k > n) continue;
    const Indexed y = kthvalue(t, k, 1);
    const Reference places = Reference::of(y.indices), found = Reference::of(y.values);
    CHECK(y.indices.dtype() == i64);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<int64_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), int64_t{0});
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const double p = seen.at({r, a}), q = seen.at({r, b});
        return std::isnan(q) ? !std::isnan(p) : p < q;
      });
      const int64_t place = order[static_cast<size_t>(k - 1)];
      const double expected = seen.at({r, place}), value = found[static_cast<size_t>(r)];
      CHECK(places[static_cast<size_t>(r)] == static_cast<double>(place));
      CHECK((value == expected || (std::isnan(value) && std::isnan(expected))));
    }
  }
}

}  // namespace

TEST_CASE("kthvalue of short and long rows in every dtype, with few values and with many") {
  int number = 0;
  for (const DType dtype : {f64, f32, f16, bf16, i64, i32, u8, boolean})
    for (const int64_t n : {1, 2, 100, 129, 300, 1000, 1040, 2048, 4093, 4096, 4100})
      for (const int64_t values : {1, 2, 37, 100000}) {
        if (!is_sampled(number++)) continue;
        Reference x({3, n});
        for (size_t i = 0; i < x.values.size(); ++i) {
          const auto value = static_cast<int64_t>(i * 7919 % 100003) % values;
          x[i] = dtype == u8        ? static_cast<double>(value % 256)
                 : dtype == boolean ? static_cast<double>(value % 2)
                                    : static_cast<double>(value) - 20;
        }
        check_rows(x, dtype);
      }
}

TEST_CASE("kthvalue of rows with NaN, infinities and both zeros") {
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {std::numeric_limits<double>::quiet_NaN(), inf, -inf, 0.0, -0.0, 1, -1};
  for (const DType dtype : {f64, f32, f16, bf16})
    for (const int64_t n : {130, 1024, 3000})
      for (const size_t kinds : {1, 3, 5, 7}) {
        Reference x({2, n});
        for (size_t i = 0; i < x.values.size(); ++i) x[i] = special[i * 5 % 11 % kinds];
        check_rows(x, dtype);
      }
}

TEST_CASE("kthvalue along a first axis, and its errors") {
  Reference x({200, 5});
  for (size_t i = 0; i < x.values.size(); ++i) x[i] = static_cast<double>(i * 37 % 1009);
  const Tensor t = x.tensor(f32, test_device());
  const Indexed y = kthvalue(t, 77, 0, true), turned = kthvalue(t.transpose(0, 1), 77, 1, true);
  CHECK(y.values.shape() == Shape{1, 5});
  CHECK(Reference::of(y.values).values == Reference::of(turned.values).values);
  CHECK(Reference::of(y.indices).values == Reference::of(turned.indices).values);
  CHECK(kthvalue(Tensor::empty({0, 5}, f32, test_device()), 5, 1).values.shape() == Shape{0});
  CHECK_THROWS_WITH_AS(kthvalue(t, 201, 0), "kthvalue: 201 elements of an axis of 200", Error);
}

// Orders of one long row, and what sorts indices.
#include <bs/kernels/index_select.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("argsort of one row of any length keeps equal elements in their order") {
  for (const DType dtype : {f32, f16, i32, u8})
    for (const int64_t n : {4097, 5121, 65536, 65537})
      for (const int64_t values : {1, 200, 100003}) {
        Reference x({1, n});
        for (size_t i = 0; i < x.values.size(); ++i) {
          const auto number = static_cast<int64_t>(i * 7919 % 100003) % values;
          x[i] = dtype == u8 ? static_cast<double>(number % 256) : static_cast<double>(number) - 70;
        }
        const Tensor t = x.tensor(dtype, test_device());
        const Reference seen = Reference::of(t);
        for (const bool descending : {false, true}) {
          std::vector<double> expected(static_cast<size_t>(n));
          std::iota(expected.begin(), expected.end(), 0.0);
          std::stable_sort(expected.begin(), expected.end(), [&](double a, double b) {
            const double p = seen[static_cast<size_t>(a)], q = seen[static_cast<size_t>(b)];
            return descending ? p > q : p < q;
          });
          CHECK(Reference::of(argsort(t, 1, descending)).values == expected);
        }
      }
}

TEST_CASE("index_select_backward of any number of indices into any number of rows") {
  for (const int64_t count : {1, 1023, 1025, 5000, 65536, 66000})
    for (const int64_t extent : {1, 300, 70000}) {
      Reference index({count}), dy({count, 2}), expected({extent, 2});
      for (int64_t k = 0; k < count; ++k) {
        const int64_t row = k * k % 7919 * 31 % extent;
        index.at({k}) = static_cast<double>(row);
        for (int64_t i = 0; i < 2; ++i) {
          dy.at({k, i}) = static_cast<double>((k * 3 + i) % 5);
          expected.at({row, i}) += dy.at({k, i});
        }
      }
      const Tensor dx = index_select_backward(dy.tensor(f32, test_device()), 0,
                                              index.tensor(i64, test_device()), extent);
      CHECK(Reference::of(dx).values == expected.values);
    }
}

#include <bs/autograd/median.h>
#include <bs/kernels/fill.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Of x [a, n, b], along its second axis.
Reference middle(const Reference& x) {
  const auto a = static_cast<size_t>(x.shape[0]), n = static_cast<size_t>(x.shape[1]),
             b = static_cast<size_t>(x.shape[2]);
  Reference y({x.shape[0], x.shape[2]});
  for (size_t i = 0; i < a; ++i)
    for (size_t j = 0; j < b; ++j) {
      std::vector<double> row;
      for (size_t k = 0; k < n; ++k) row.push_back(x[(i * n + k) * b + j]);
      std::sort(row.begin(), row.end());
      y[i * b + j] = row[(n - 1) / 2];
    }
  return y;
}

}  // namespace

TEST_CASE("median of rows of odd and even lengths") {
  for (const int64_t n : {1, 2, 3, 8, 101})
    check_op({.name = "median of " + std::to_string(n),
              .inputs = {{2, n, 3}},
              .op = [](const Variables& v) { return median(v[0], 1).values; },
              .reference = [](const References& in) { return middle(in[0]); }});
}

TEST_CASE("median: positions, NaN, integers, kept axes and errors") {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  const Tensor x =
      Tensor::from<double>({3, 1, 2, nan, 1, nan, infinity, -infinity, 0, 5, 5, 5}, {4, 3})
          .to(test_device());
  const Indexed y = median(x, 1), kept = median(x, -1, true);
  const std::vector<double> values = Reference::of(y.values).values;
  CHECK(values[0] == 2);
  CHECK(values[1] != values[1]);
  CHECK(values[2] == 0);
  CHECK(values[3] == 5);
  CHECK(Reference::of(y.indices).values == std::vector<double>{2, 0, 2, 1});
  CHECK(kept.values.shape() == Shape{4, 1});
  CHECK(kept.indices.shape() == Shape{4, 1});
  const Tensor whole = Tensor::from<int64_t>({4, 1, 9, 2}).to(test_device());
  CHECK(median(whole, 0).values.dtype() == i64);
  CHECK(median(whole, 0).values.item() == 2);
  CHECK(median(whole, 0).indices.item() == 3);
  CHECK(median(zeros({3, 0}, f32, test_device()), 0).values.shape() == Shape{0});
  CHECK_THROWS_WITH_AS(median(zeros({3, 0}, f32, test_device()), 1),
                       "median: axis 1 of [3, 0] has no elements", Error);
  CHECK_THROWS_WITH_AS(median(whole, 1), "median: axis 1 is out of range for rank 1", Error);
}

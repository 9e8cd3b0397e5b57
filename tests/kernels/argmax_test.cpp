// Places of the largest and the smallest along an axis that is not the last.
#include <bs/kernels/reduce.h>
#include <bs/kernels/sort.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/op_case.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// Where the first of the largest or the smallest of x [outer, n, inner] is; NaN is beyond all.
std::vector<double> places(const Reference& x, bool largest) {
  const int64_t outer = x.shape[0], n = x.shape[1], inner = x.shape[2];
  std::vector<double> found;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t c = 0; c < inner; ++c) {
      const auto at = [&](int64_t j) { return x[static_cast<size_t>((o * n + j) * inner + c)]; };
      int64_t best = 0;
      for (int64_t j = 1; j < n && !std::isnan(at(best)); ++j)
        if (std::isnan(at(j)) || (largest ? at(j) > at(best) : at(j) < at(best))) best = j;
      found.push_back(static_cast<double>(best));
    }
  return found;
}

}  // namespace

TEST_CASE("argmax and argmin of many columns, with equal ones, infinities and NaN") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16, i64, u8})
    for (const Shape& shape : {Shape{1, 1, 16}, Shape{2, 9, 16}, Shape{3, 40, 15}, Shape{1, 33, 64},
                               Shape{2, 70, 65}, Shape{1, 257, 197}}) {
      CAPTURE(dtype);
      CAPTURE(shape);
      Reference x(shape);
      for (size_t i = 0; i < x.values.size(); ++i) {
        x[i] = static_cast<double>(i * 7919 % 13);
        if (!is_floating(dtype)) continue;
        if (i % 61 == 5) x[i] = nan;
        if (i % 17 == 3) x[i] = i % 2 == 0 ? infinity : -infinity;
      }
      const Tensor t = x.tensor(dtype, test_device());
      CHECK(Reference::of(argmax(t, 1)).values == places(x, true));
      CHECK(Reference::of(argmin(t, 1)).values == places(x, false));
    }
}

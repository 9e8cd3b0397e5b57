#pragma once
/** @file Naive reductions over any axes, for the tests of reductions. */
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace bs::test {

/// Calls f(index in x, index of its result) for all elements of a tensor of `shape`.
template <class F>
void for_each_term(const Shape& shape, const Dims& axes, F f) {
  for (int64_t i = 0; i < shape.product(); ++i) {
    int64_t rest = i;
    int64_t result = 0;
    int64_t step = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const int64_t index = rest % shape[axis];
      rest /= shape[axis];
      bool reduced = false;
      for (int64_t named : axes) reduced = reduced || (named + shape.rank()) % shape.rank() == axis;
      if (reduced) continue;
      result += index * step;
      step *= shape[axis];
    }
    f(static_cast<size_t>(i), static_cast<size_t>(result));
  }
}

inline Shape reduced(const Shape& shape, const Dims& axes, bool keepdim) {
  Shape out;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    bool gone = false;
    for (int64_t named : axes) gone = gone || (named + shape.rank()) % shape.rank() == axis;
    if (!gone) out.push_back(shape[axis]);
    if (gone && keepdim) out.push_back(1);
  }
  return out;
}

inline double count_of(const Reference& x, const Reference& y) {
  return static_cast<double>(x.values.size()) / static_cast<double>(y.values.size());
}

/// Sums of term(i, result), kept in more than double: among thousands of them, rounding in the
/// reference would show.
template <class Term>
Reference sums_of(const Reference& x, const Dims& axes, bool keepdim, Term term) {
  Reference y(reduced(x.shape, axes, keepdim));
  std::vector<long double> sums(y.values.size());
  for_each_term(x.shape, axes, [&](size_t i, size_t r) { sums[r] += term(i, r); });
  for (size_t r = 0; r < sums.size(); ++r) y[r] = static_cast<double>(sums[r]);
  return y;
}

inline Reference sum_of(const Reference& x, const Dims& axes, bool keepdim) {
  return sums_of(x, axes, keepdim, [&](size_t i, size_t) { return x[i]; });
}

inline Reference mean_of(const Reference& x, const Dims& axes, bool keepdim) {
  Reference y = sum_of(x, axes, keepdim);
  const double n = count_of(x, y);
  for (double& v : y.values) v /= n;
  return y;
}

inline Reference var_of(const Reference& x, const Dims& axes, bool keepdim, double correction) {
  const Reference mean = mean_of(x, axes, keepdim);
  const double n = count_of(x, mean);
  return sums_of(x, axes, keepdim, [&](size_t i, size_t r) {
    return (x[i] - mean[r]) * (x[i] - mean[r]) / (n - correction);
  });
}

inline Reference extremum_of(const Reference& x, const Dims& axes, bool keepdim, double sign) {
  Reference y(reduced(x.shape, axes, keepdim));
  std::fill(y.values.begin(), y.values.end(), -std::numeric_limits<double>::infinity());
  for_each_term(x.shape, axes, [&](size_t i, size_t r) { y[r] = std::max(y[r], sign * x[i]); });
  for (double& v : y.values) v *= sign;
  return y;
}

struct ReductionCase {
  Shape shape;
  Dims axes;
};
/// Rows, columns, middles, several runs of axes, all axes; lengths about those of pieces and
/// chunks.
inline const std::vector<ReductionCase> reduction_cases = {
    {{3, 5}, {1}},       {{3, 5}, {0}},       {{3, 5}, {0, 1}},       {{7}, {0}},
    {{4, 3, 5}, {1}},    {{4, 3, 5}, {0, 2}}, {{2, 3, 4, 5}, {1, 3}}, {{2, 3, 4, 5}, {-3, 2}},
    {{1, 1}, {0}},       {{3, 1, 5}, {1}},    {{2, 1031}, {1}},       {{1031, 3}, {0}},
    {{2, 3, 1030}, {1}}, {{2, 65, 9}, {1}},   {{20000}, {0}},         {{300, 70}, {0}},
    {{5, 1, 6}, {0, 2}}, {{2, 8193}, {-1}},   {{64, 33}, {0}},        {{65, 2, 1}, {0}}};

inline Reference full_of(int64_t n, double value) {
  Reference r({n});
  std::fill(r.values.begin(), r.values.end(), value);
  return r;
}

inline Tensor on_device(const Tensor& x) { return x.to(test_device()); }

}  // namespace bs::test

#pragma once
/** @file log(sum(exp(x))) of a row. */
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>

#include <cstdint>
#include <limits>

namespace bs::cpu {

/** @brief The largest x, and the sum of exp(x - largest). The sum is NaN for a row that has one, or
 *  +infinity, or nothing but -infinity. */
template <class W>
struct ExponentialSum {
  W top, sum;
};

template <class W>
ExponentialSum<W> exponential_sum(const W* x, int64_t n) {
  W top = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return {top, sum_of<W>(n, [=](int64_t i) { return math::exp(x[i] - top); })};
}

/** @brief log(sum(exp(x))), likewise. */
template <class W>
W log_sum_exp(const W* x, int64_t n) {
  const ExponentialSum<W> of = exponential_sum(x, n);
  return of.top + math::log(of.sum);
}

}  // namespace bs::cpu

#pragma once
/** @file log(sum(exp(x))) of a row. */
#include <bs/kernels/cpu/rows.h>
#include <bs/kernels/cpu/vector_math.h>

#include <cstdint>
#include <limits>

namespace bs::cpu {

/** @brief log(sum(exp(x))), with the largest x taken out of the sum. NaN for a row that has one, or
 *  +infinity, or nothing but -infinity. */
template <class W>
W log_sum_exp(const W* x, int64_t n) {
  W top = -std::numeric_limits<W>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top + math::log(sum_of<W>(n, [=](int64_t i) { return math::exp(x[i] - top); }));
}

}  // namespace bs::cpu

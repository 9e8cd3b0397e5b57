#pragma once
/** @file Runs a StridedLoop row by row on the cores. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/strided.h>

namespace bs::cpu {

/** @brief Calls `row(offsets, from, count)` for pieces of innermost rows: `offsets[n]` is where
 * tensor n's row starts, the piece is its elements [from, from + count) with the loop's inner
 * strides. */
template <int N, class Row>
void for_each_row(const StridedLoop<N>& loop, Row&& row) {
  const int64_t inner = loop.inner();
  parallel_for(loop.numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      std::array<int64_t, N> offsets{};
      int64_t rest = begin / inner;
      for (int axis = loop.rank - 2; axis >= 0; --axis) {
        const int64_t at = rest % loop.shape[axis];
        rest /= loop.shape[axis];
        for (int n = 0; n < N; ++n) offsets[static_cast<size_t>(n)] += at * loop.strides[n][axis];
      }
      const int64_t from = begin % inner;
      const int64_t count = std::min(inner - from, end - begin);
      row(offsets, from, count);
      begin += count;
    }
  });
}

}  // namespace bs::cpu

#pragma once
/** @file Runs a StridedLoop row by row on the cores. */
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/strided.h>

#include <array>
#include <utility>

namespace bs::cpu {

/** @brief Calls `row(offsets, from, count)` for pieces of innermost rows: `offsets[n]` is where
 * tensor n's row starts, the piece is its elements [from, from + count) with the loop's inner
 * strides. */
template <int N, class Row>
void for_each_row(const StridedLoop<N>& loop, Row&& row) {
  const int64_t inner = loop.inner();
  const int last = loop.rank - 2;  // the axis that rows follow one another along, if there is one
  const int64_t rows = last < 0 ? 1 : loop.shape[last];
  parallel_for(loop.numel(), elementwise_grain, [&](int64_t begin, int64_t end) {
    // Where the first row lies takes divisions; from there on, the outer axes are counted along.
    std::array<int64_t, Dims::max_rank> index{};
    std::array<int64_t, N> offsets{}, apart{};
    const auto step = [&](int axis, int64_t by) {
      for (int n = 0; n < N; ++n) offsets[static_cast<size_t>(n)] += by * loop.strides[n][axis];
    };
    int64_t from = begin % inner, at = begin / inner % rows, rest = begin / inner / rows;
    if (last >= 0) step(last, at);
    for (size_t n = 0; n < N && last >= 0; ++n) apart[n] = loop.strides[n][last];
    for (int axis = last - 1; axis >= 0; --axis) {
      const int64_t i = rest % loop.shape[axis];
      index[static_cast<size_t>(axis)] = i;
      rest /= loop.shape[axis];
      step(axis, i);
    }
    while (begin < end) {
      for (; at < rows && begin < end; ++at) {
        const int64_t count = std::min(inner - from, end - begin);
        row(std::as_const(offsets), from, count);
        begin += count;
        from = 0;
        for (size_t n = 0; n < N; ++n) offsets[n] += apart[n];
      }
      for (size_t n = 0; n < N; ++n) offsets[n] -= rows * apart[n];
      at = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        step(axis, 1);
        int64_t& i = index[static_cast<size_t>(axis)];
        if (++i < loop.shape[axis]) break;
        step(axis, -i);
        i = 0;
      }
    }
  });
}

}  // namespace bs::cpu

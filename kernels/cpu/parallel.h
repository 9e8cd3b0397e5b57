#pragma once
/** @file Splitting loops over the cores. */
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace bs::cpu {

/** @brief Calls `body(begin, end)` on disjoint ranges that cover [0, n), in parallel when there are
 *  at least two pieces of `grain` items. Every item is computed the same way whatever the split. */
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  const int64_t pieces = std::min<int64_t>(omp_get_max_threads(), n / std::max<int64_t>(grain, 1));
  if (pieces <= 1 || omp_in_parallel()) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(pieces))
  for (int64_t p = 0; p < pieces; ++p) body(n * p / pieces, n * (p + 1) / pieces);
}

/** @brief Threads worth waking for `work` units when `enough` of them pay for one; 1 inside another
 *  parallel region. */
inline int team_size(double work, double enough) {
  const int most = omp_in_parallel() ? 1 : omp_get_max_threads();
  return static_cast<int>(std::clamp(work / enough, 1.0, static_cast<double>(most)));
}

/** @brief Calls `body(i)` for each i in [0, n) on `team` threads, which take one item after the
 *  other: for items of unequal cost. */
template <class Body>
void parallel_each(int64_t n, int team, Body&& body) {
#pragma omp parallel for schedule(dynamic) num_threads(team) if (team > 1)
  for (int64_t i = 0; i < n; ++i) body(i);
}

/** @brief Items a thread should have at least for a cheap operation per item. */
inline constexpr int64_t elementwise_grain = 16384;

}  // namespace bs::cpu

#pragma once
/** @file Splitting loops over the cores.
 *
 *  Every parallel region has all threads or one. The OpenMP runtime ends threads that a smaller
 * team leaves over and makes them anew for the next; that costs more than letting some of them
 * wait.
 *
 *  No exception may leave a region: what can throw in one, as all that needs memory can, does so
 *  under a Failure, which is thrown behind it. */
#include <bs/lib/failure.h>
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
  Failure failure;
#pragma omp parallel for schedule(static) num_threads(omp_get_max_threads())
  for (int64_t p = 0; p < pieces; ++p)
    failure.guard([&] { body(n * p / pieces, n * (p + 1) / pieces); });
  failure.rethrow();
}

/** @brief All threads where `work` units pay for waking a quarter of them, and at least two;
 * `enough` units pay for one. Otherwise 1, as inside another parallel region. */
inline int team_size(double work, double enough) {
  const int most = omp_get_max_threads();
  return omp_in_parallel() || work < enough * std::max(2, most / 4) ? 1 : most;
}

/** @brief Calls `body(i)` for each i in [0, n) on `team` threads, which take one item after the
 *  other: for items of unequal cost. */
template <class Body>
void parallel_each(int64_t n, int team, Body&& body) {
  if (team == 1) {  // a region of one thread would make every region in `body` a nested one
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
  Failure failure;
#pragma omp parallel for schedule(dynamic) num_threads(team)
  for (int64_t i = 0; i < n; ++i) failure.guard([&] { body(i); });
  failure.rethrow();
}

/** @brief Items a thread should have at least for a cheap operation per item. */
inline constexpr int64_t elementwise_grain = 16384;

}  // namespace bs::cpu

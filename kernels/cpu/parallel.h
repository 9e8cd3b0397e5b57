#pragma once
/** @file Splitting loops over the cores.
 *
 *  Every region has all threads or one: another number would make a new team.
 *
 *  What throws in a region, as all that needs memory can, is thrown again behind it. */
#include <bs/lib/team.h>
#include <bs/lib/threads.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace bs::cpu {

/** @brief All threads, but one inside of a region. */
inline int whole_team() { return in_team() ? 1 : threads(); }

/** @brief Calls `body(begin, end)` on disjoint ranges that cover [0, n), in parallel when there are
 *  at least two pieces of `grain` items. Every item is computed the same way whatever the split. */
template <class Body>
void parallel_for(int64_t n, int64_t grain, Body&& body) {
  const int team = whole_team();
  const int64_t pieces = std::min<int64_t>(team, n / std::max<int64_t>(grain, 1));
  if (pieces <= 1) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
  run_team(team, [&](const TeamThread& thread) {
    const int64_t p = thread.number();
    if (p < pieces) body(n * p / pieces, n * (p + 1) / pieces);
  });
}

/** @brief All threads where `work` units pay for waking a quarter of them, and at least two;
 * `enough` units pay for one. Otherwise 1, as inside another region. */
inline int team_size(double work, double enough) {
  const int most = whole_team();
  return work < enough * std::max(2, most / 4) ? 1 : most;
}

/** @brief As parallel_each, with `body(i, own)`: each thread begins with an object that `make`
 * gives it. */
template <class Make, class Body>
void parallel_each_with(int64_t n, int team, Make&& make, Body&& body) {
  std::atomic<int64_t> next = 0;
  run_team(team, [&](const TeamThread&) {
    auto own = make();
    for (int64_t i; (i = next++) < n;) body(i, own);
  });
}

/** @brief Items a thread should have at least for a cheap operation per item. */
inline constexpr int64_t elementwise_grain = 16384;

}  // namespace bs::cpu

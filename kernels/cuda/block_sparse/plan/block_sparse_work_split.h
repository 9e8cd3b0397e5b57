#pragma once
/** @file How items of work are shared out among workers, and cut into parts where they are too long
 *  or too few: pure functions of how long they are. */
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief When the last of `workers` ends who take items of these costs in their order. */
int64_t time_to_finish(std::span<const int64_t> costs, int workers);

/** @brief Items cut into pieces, longer pieces first. */
struct WorkPieces {
  std::vector<device::WorkPiece> pieces = {};  ///< none: items had better be taken whole
  int slots = 0;                               ///< partial sums: parts of an item but its last
  int64_t time = 0;                            ///< until all are done

  /** @brief What plans of different tiles are compared by, since times are estimates: parts have to
   *  gain a twentieth over whole items of another tile, as they have to over those of their own. */
  int64_t rated_time() const { return time * (pieces.empty() ? 19 : 20); }
};

/** @brief What takes how long where items are cut, in any unit: as it stands, in steps of sdd of
 *  f32, measured on an H200. */
struct SplitCosts {
  int step = 1;
  int tile = 2;          ///< the end of an item
  int store = 2;         ///< the store of the sums of a part
  int load = 5;          ///< waiting for those of another part, and adding them
  int list = 6;          ///< that there are parts at all, which CTAs then take from a list
  int least_part = 4;    ///< steps that a part is worth making for
  int most_parts = 8;    ///< of an item
  int most_slots = 500;  ///< parts of all items but one each: sums of 64 MiB
  int worth = 95;        ///< percent of whole items' time that it may take to be worth a list
  int crowd = 0;         ///< with so many slots adding a part takes all of `load`; 0: with any
  int quiet_load = 0;    ///< with hardly any

  /// What adding a part takes with so many slots.
  constexpr int load_among(int64_t slots) const {
    if (crowd == 0) return load;
    return quiet_load +
           static_cast<int>((load - quiet_load) * std::min<int64_t>(slots, crowd) / crowd);
  }
};
/** @brief In nanoseconds, measured on an H100 (bench/NOTES.md), of kernels a step of which takes
 *  `step` and whose parts hand over `sums` bytes through L2. */
constexpr SplitCosts split_costs(int step, int64_t sums) {
  return {.step = step,
          .tile = 1400,
          .store = static_cast<int>(700 + sums / 50),
          .load = static_cast<int>(200 + sums / 50),
          .list = 3200,
          .least_part = (2500 + step - 1) / step,
          .most_parts = 16,
          .most_slots = static_cast<int>(std::min((int64_t{64} << 20) / sums, int64_t{1000}))};
}

/** @brief In nanoseconds, of 16-bit sdd, measured on an H100 (bench/NOTES.md): sums come back to
 *  registers that are nearly all taken, and many of them push operands out of L2. */
constexpr SplitCosts sdd_split_costs(int step, int64_t sums) {
  return {.step = step,
          .tile = static_cast<int>(sums / 50),
          .store = static_cast<int>(sums / 12),
          .load = static_cast<int>(sums / 8),
          .list = 1000,
          .worth = 100,
          .crowd = static_cast<int>(4'600'000 / sums),
          .quiet_load = static_cast<int>(sums / 50)};
}

/** @brief In steps, of sdd of f32, in three products (`split`) or rounded to TF32. The latter waits
 * for memory where operands do not stay in L2: with parts of all of many items, as measured on an
 * H100, it takes 1.4 to 1.7 times as long as with whole ones. */
constexpr SplitCosts tf32_sdd_costs(bool split, int64_t sums) {
  SplitCosts costs;
  if (!split) costs.most_slots = static_cast<int>((int64_t{16} << 20) / sums);
  return costs;
}

/** @brief Cuts items so that all workers end at about the same time; no pieces where whole items,
 *  handed out the longest first, end about as early, and none finer that does not gain a twentieth.
 *
 *  Long items are cut into as few even parts as are no longer than the longest item's half, third
 *  and so on; or else only those that whole rounds of items leave over. So parts that run at
 *  once walk the same stretches of the depth, and find in the L2 cache what others have read: cut
 *  as stream-K does, at any step, sdd was slower than whole.
 *  @param[in] lengths of the items */
WorkPieces split_work(const std::vector<int32_t>& lengths, int workers,
                      const SplitCosts& costs = {});

/** @brief The same of items that whole ones are taken of in the order of their numbers, not the
 *  longest first: parts come first, and whole items that are longer than a sixteenth of a worker's
 *  share. The others stay in their order, in which neighbours read the same. Without parts, pieces
 *  only where the order of the numbers ends late. */
WorkPieces split_in_order(const std::vector<int32_t>& lengths, int workers,
                          const SplitCosts& costs = {});

/** @brief More items a worker than this, or more at all, are never cut: they are not worth a list.
 */
inline constexpr int most_split_items = 8, most_listed_items = 2047;

}  // namespace bs::cuda

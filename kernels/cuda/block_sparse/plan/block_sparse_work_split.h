#pragma once
/** @file How items of work are shared out among workers, and cut into parts where they are too long
 *  or too few: pure functions of how long they are. */
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief When the last of `workers` ends who take items of these costs in their order. */
int64_t time_to_finish(std::span<const int64_t> costs, int workers);

/** @brief Whether a list of pieces, or a finer cut, pays: times are estimates, so it has to gain a
 *  twentieth. */
constexpr bool pays(int64_t time, int64_t before) { return 20 * time < 19 * before; }

/** @brief Items cut into pieces, longer pieces first. */
struct WorkPieces {
  std::vector<device::WorkPiece> pieces = {};  ///< none: items are taken whole
  int slots = 0;                               ///< partial sums: parts of an item but its last
  int64_t time = 0;                            ///< until all are done

  /** @brief The time by which plans of different tiles are compared: parts have to pay over whole
   *  items, of another tile as of their own. */
  int64_t rated_time() const { return time * (pieces.empty() ? 19 : 20); }
};

/// Of an item.
inline constexpr int most_parts = 16;
/// Counters of a launch: two of its own, and those by which parts wait for each other.
inline constexpr int most_counters = 2048;

/** @brief How long the parts of cut items take, in any one unit. */
struct SplitCosts {
  int step = 1;
  int tile = 0;        ///< the end of an item
  int store = 0;       ///< the store of the sums of a part
  int load = 0;        ///< waiting for those of another part, and adding them
  int list = 0;        ///< that there are parts at all, which CTAs then take from a list
  int most_slots = 0;  ///< parts of all items but one each
  int crowd = 0;       ///< with so many slots adding a part takes all of `load`; 0: with any
  int quiet_load = 0;  ///< with hardly any

  /// What adding a part takes with so many slots.
  constexpr int load_among(int64_t slots) const {
    if (crowd == 0) return load;
    return quiet_load +
           static_cast<int>((load - quiet_load) * std::min<int64_t>(slots, crowd) / crowd);
  }
};
/** @brief Cuts items so that all workers end at about the same time; no pieces where whole items,
 *  handed out the longest first, end about as early, and none finer that does not gain a twentieth.
 *
 *  Long items are cut into as few even parts as are no longer than the longest item's half, third
 *  and so on; or else only those that whole rounds of items leave over. So parts that run at
 *  once walk the same stretches of the depth, and find in the L2 cache what others have read: cut
 *  as stream-K does, at any step, sdd was slower than whole.
 *  @param[in] lengths of the items
 *  @param[in] limit none are listed that are done no sooner */
WorkPieces split_work(const std::vector<int32_t>& lengths, int workers, const SplitCosts& costs,
                      double limit = std::numeric_limits<double>::infinity());

/** @brief The same of items that whole ones are taken of in the order of their numbers, not the
 *  longest first: parts come first, and whole items that are longer than a sixteenth of a worker's
 *  share. The others stay in their order, in which neighbours read the same. Without parts, pieces
 *  only where the order of the numbers ends late. */
WorkPieces split_in_order(const std::vector<int32_t>& lengths, int workers,
                          const SplitCosts& costs);

/** @brief Items are not cut if a worker has more than so many, or if there are more at all. */
inline constexpr int most_split_items = 8, most_listed_items = 2047;

}  // namespace bs::cuda

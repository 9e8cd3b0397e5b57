#pragma once
/** @file Into which items the kernels of sdd on wgmma cut strips, and in which order they are
 * taken: pure functions. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief Items of sdd. */
struct SddItems {
  std::vector<device::SddRange> ranges = {};
  std::vector<double> costs = {};  ///< of each: nanoseconds a step
};
/** @brief Cuts each range into some of `most` columns at most, as even as can be. */
std::vector<device::SddRange> cut_ranges(const std::vector<device::SddRange>& ranges, int most);
/** @brief All columns of each strip. */
std::vector<device::SddRange> whole_ranges(const Strips& strips);
/** @brief What items cost with a tile of the kernels.
 *  @param[in] lines that the rows of a strip take of L2 a step */
std::vector<double> sdd_costs(const std::vector<device::SddRange>& items, int lines, int block,
                              const WarpgroupTile& tile, const Gpu& gpu);
/** @brief The items of strips for a tile of the kernels, with what they cost. */
SddItems list_sdd(const std::vector<device::SddRange>& strips, int lines, int block,
                  const WarpgroupTile& tile, const Gpu& gpu);
/** @brief Orders the items of list_sdd so that those that run at once read few lines of A and B. A
 *  group has as many of B's columns as `workers` items have of A's rows.
 *  @param[in] rows of A that an item reads
 *  @param[in] columns of B */
SddItems order_sdd(const SddItems& items, int rows, int64_t columns, int workers);

}  // namespace bs::cuda

#pragma once
/** @file In which order the items of dsd are taken, strips over tiles of columns. Lengths are in
 *  steps, stages of a depth of 64. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/kernels/cuda/gpu.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief What the order of a product's items depends on besides its strips. */
struct DsdExtent {
  int cols = 0;             ///< of a tile
  int64_t columns = 0;      ///< tiles of columns of all C
  int64_t products = 1;     ///< summed into each C
  int64_t tiles = 1;        ///< of columns of one C
  bool sums_heads = false;  ///< heads are the last axis of the sum, else that of the batch
  int element = 2;          ///< bytes of one
  bool in_parts = false;    ///< f32 as three products of its parts
};

/** @brief Steps that dsd takes for a strip of so many union columns. */
constexpr int32_t dsd_steps(int64_t columns, int block) {
  return static_cast<int32_t>((columns * block + 63) / 64);
}
/** @brief The longest strips first, each over all columns. */
constexpr device::WorkOrder all_strips(int64_t strips, int64_t columns) {
  return {.first = static_cast<int>(strips), .group = static_cast<int>(columns), .groups = 1};
}

/** @brief The longest strips first, in groups of columns.
 *
 *  Whatever runs at once had better read the same part of B, of which `fitting` tiles of columns
 *  are a quarter of the L2 cache; and the last items to start had better be short ones. So long
 *  strips come over all columns before the groups, and the last group has three items for each
 *  worker.
 *  @param[in] lengths of the strips, the longest first
 *  @param[in] columns tiles of these */
device::WorkOrder order_by_length(const std::vector<int32_t>& lengths, int64_t columns,
                                  int64_t fitting, int workers);
/** @brief Groups up to the end, each of what fits or of as many columns as are worked on at once;
 *  but for a last one of as few as let all end a fiftieth later at most than by length. */
device::WorkOrder order_by_columns(const std::vector<int32_t>& lengths, int64_t columns,
                                   int64_t fitting, int workers);
/** @brief By columns, where strips by length that are worked on at once read B again and again,
 *  since each has most of its rows; strip after strip, where neighbours have much in common, as
 *  those of bands do; else by length, as are several products, and f32 in parts, whose steps
 * multiply for longer than they read. O(nnz) time. */
device::WorkOrder order_dsd(const Layout& layout, const Strips& strips, const DsdExtent& extent,
                            const Gpu& gpu);
/** @brief Steps that the items take, in the order of their numbers: strips of a rank (those of all
 *  heads that are as many places from their head's longest one) over the tiles of columns. */
std::vector<int32_t> dsd_items(const Strips& strips, int block, const DsdExtent& extent);

}  // namespace bs::cuda

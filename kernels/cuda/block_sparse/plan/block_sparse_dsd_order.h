#pragma once
/** @file In which order the items of dsd are taken, strips over tiles of columns. Lengths are in
 *  steps, stages of a depth of 64. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/kernels/cuda/gpu/gpu.h>
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
 *  Items that run at once should read the same part of B: `fitting` tiles of its columns are a
 *  quarter of the L2 cache. The last items to start should be short. So long strips come first,
 * over all columns. The last group has three items for each worker.
 *  @param[in] lengths of the strips, the longest first
 *  @param[in] columns tiles of these */
device::WorkOrder order_by_length(const std::vector<int32_t>& lengths, int64_t columns,
                                  int64_t fitting, int workers);
/** @brief Groups up to the end, each of the columns that fit or that are worked on at once. The
 * last group is smaller, so that all workers end a twentieth later at most than by length. */
device::WorkOrder order_by_columns(const std::vector<int32_t>& lengths, int64_t columns,
                                   int64_t fitting, int workers);
/** @brief One of three orders, in O(nnz) time:
 *  - by columns, where strips that run at once by length would read most of B several times;
 *  - strip after strip, where neighbours have much in common, as those of bands do;
 *  - else by length. So are several products, and split f32, which multiplies for longer than it
 *    reads. */
device::WorkOrder order_dsd(const Layout& layout, const Strips& strips, const DsdExtent& extent,
                            const Gpu& gpu);
/** @brief Steps that the items take, in the order of their numbers: strips of a rank (those of all
 *  heads that are as many places from their head's longest one) over the tiles of columns. */
std::vector<int32_t> dsd_items(const Strips& strips, int block, const DsdExtent& extent);

}  // namespace bs::cuda

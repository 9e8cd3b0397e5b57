#pragma once
/** @file Into which items the warpgroup kernels of sdd cut a layout, and in which order they had
 *  better be taken: pure functions of its strips. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief Items of sdd. */
struct SddItems {
  std::vector<device::SddShare> shares = {};        ///< [items, ctas]
  std::vector<int32_t> costs = {};                  ///< of each: cycles a step
  std::vector<std::array<int32_t, 2>> slices = {};  ///< which of its strip each is, of how many

  int64_t cost() const;  ///< of all
};
/** @brief Cycles that a step of an item takes at least: so many lines of 128 bytes, or shorter
 * ones, come from L2, and each warpgroup multiplies `cols` columns. */
int32_t sdd_cycles(int lines, int cols);
/** @brief Cuts the columns of each strip into items that are as even as can be, one a CTA. */
SddItems list_sdd(const BlockSparseStrips& strips, int block, SddForm form);
/** @brief Items of blocks of 128 of two columns each, or one, for clusters of two CTAs. Each CTA
 * has an item of its own, or both have half of the depth of one: an item's time is then half as
 * long, and an exchange of sums besides.
 *  @param[in] steps of an item
 *  @param[in] whole clusters that begin with two items of two columns, where there are as many
 *  @param[in] narrow whether all others have one column: more of them, of half the length
 *  @return items with their costs, of `steps` alike: the longest first; without slices */
SddItems list_sdd_by_depth(const BlockSparseStrips& strips, int64_t steps, int64_t whole,
                           bool narrow);
/** @brief The items of list_sdd in the order in which they had better be taken.
 *
 *  What runs at once should read few lines of A and B. So items come in groups of as much of B's
 *  columns as `workers` items have of A's rows; those of less than half of the greatest cost last.
 *  @param[in] rows of A that an item reads
 *  @param[in] columns of B */
SddItems order_sdd(const SddItems& items, int rows, int64_t columns, int workers);

}  // namespace bs::cuda

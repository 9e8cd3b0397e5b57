#pragma once
/** @file In which order, and by which parts, the tiles of dsd on mma.sync are taken. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_costs.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/lib/integers.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief Lines of op(S), those with the most blocks first, whatever the head: at the end some CTAs
 *  would have them, and others nothing. */
std::vector<int32_t> sorted_lines(const Layout& layout, bool transposed);

/** @brief Tiles over the rows of a block, and over the columns. */
struct TileCounts {
  int64_t rows = 1, cols = 1;
};
/** @brief Steps that the tiles of dsd take, in the order of their numbers: the tiles over the rows
 *  of a block, over the lines in their order, over the columns, over the batch.
 *  @param[in] of_step blocks that a step has */
std::vector<int32_t> tile_steps(const Layout& layout, const DsdShape& shape,
                                const std::vector<int32_t>& lines, int of_step,
                                const TileCounts& counts);

/** @brief Whether blocks of 8 read each part of B, one a head for each block column of op(S), so
 *  often that a copy with long lines pays. Of f64 what they read are lines of 64 bytes. */
inline bool reads_often(const Layout& layout, Factors factors, bool transposed) {
  const int64_t columns = transposed ? layout.rows() : layout.cols();
  return layout.block() == 8 && factors != Factors::f64 &&
         layout.nnz() >= 4 * layout.heads() * columns;
}

/** @brief Columns of the tiles of dsd on mma.sync for a result of `n` columns: the widest that
 * these fill, or half as many while all of the tiles run at once, two on a multiprocessor. Where
 * that halves tiles they take .89 and .83 of the time in the median ("Do half tiles on mma.sync
 * pay?", an H200).
 *  @param[in] lines block rows of all C */
inline int soonest_tile(int size, int block, bool split, int64_t n, int64_t lines, int workers) {
  int cols = widest_tile(size, block, split);
  const int tall = block_sparse_tile(size, block, split, cols).rows;
  const int64_t rows = lines * ceil_div(block, tall), at_once = int64_t{2} * workers;
  while (cols > 64 && (n <= cols / 2 || rows * ceil_div(n, cols / 2) <= at_once)) cols /= 2;
  return cols;
}

}  // namespace bs::cuda

#pragma once
/** @file What the warpgroup kernels walk: a layout in strips of block rows. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_groups.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

#include <span>
#include <vector>

namespace bs::cuda {

/** @brief The rows of op(S), whatever order they are stored in. */
struct LayoutRows {
  const int32_t* offsets;  ///< of all heads
  const int32_t* col;
  const int32_t* number;  ///< null: blocks are numbered in this order
  int heads, rows, cols;

  LayoutRows(const LayoutView& v, bool transposed)
      : offsets(transposed ? v.col_offsets : v.row_offsets),
        col(transposed ? v.transposed_row : v.col_of),
        number(transposed ? v.transposed : nullptr),
        heads(v.heads),
        rows(transposed ? v.cols : v.rows),
        cols(transposed ? v.rows : v.cols) {}
};

/** @brief Strips of `rows` block rows of one head, consecutive or gathered, and for each the union
 * of the columns of its rows with the number of every row's block there. O(nnz) memory and time.
 * The columns of a strip are sorted; or pairs, 2c and 2c + 1 of which both are there, stay together
 * where kernels take columns two at a time: see PairOrder.
 * The host counts the columns, since memory and schedules go by their number; the lists themselves
 * are made on the device, which the host does not wait for. */
struct BlockSparseStrips {
  Tensor lists, columns;                ///< i32, on the device
  device::StripList list{};             ///< into it
  std::vector<int32_t> offsets, order;  ///< those of the list, on the host
  int side = 0;                         ///< block rows of a strip
  bool gathered = false;
  Milestone made;

  /** @param[in] transposed strips of block columns of the layout, for op(S) = S^T
   *  @param[in] rows block rows of a strip
   *  @param[in] listed which ones, as RowGroups has them; empty: consecutive ones
   *  @param[in] pairs of columns stay together */
  BlockSparseStrips(const Layout& layout, bool transposed, int rows, Device device,
                    std::span<const int32_t> listed = {}, bool pairs = false);

  /** @brief Union columns of strip `strip` of all heads. */
  int length(int strip) const {
    const auto s = static_cast<size_t>(strip);
    return offsets[s + 1] - offsets[s];
  }
};

/** @brief The same, made once for a layout and kept with it; for the device's current stream.
 *  @param[in] groups whose rows are gathered, of the same layout and number of rows; null: none */
const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, Device device,
                                   const RowGroups* groups = nullptr, bool pairs = false);

/** @brief How often strips read a column of op(S) that are taken so many at once, in their order
 *  from place `first` of each head on: the mean, over the columns that any of them has, of as many
 *  of these runs as have it. O(nnz) time.
 *  @param[in] transposed what the strips are of */
double column_reads(const Layout& layout, bool transposed, const BlockSparseStrips& strips,
                    int first, int at_once);

}  // namespace bs::cuda

#pragma once
/** @file Layouts from lists, masks and starts that were made on a device. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/layout.h>

namespace bs {

/** @brief Extents of a layout that lists are for. */
struct RowListExtents {
  int heads = 1, rows = 0, cols = 0;
  int block = 32;  ///< elements a side of a block
};

/** @brief The layout whose block rows are listed one behind the other: compressed sparse rows.
 *
 *  The column order is that of a stable sort of the blocks by column, so equal lists give equal
 *  layouts. On CUDA the host waits for nothing: the number of blocks is the columns' extent.
 *  @param[in] row_offsets i32 [heads * rows + 1], ascending from 0 to the number of columns. Row r
 *  of head h has the columns [row_offsets[h rows + r], row_offsets[h rows + r + 1])
 *  @param[in] columns i32 [nnz], ascending within a row
 *  @throws Error for other shapes or dtypes; on the CPU also for lists that do not ascend, or
 * columns outside. On CUDA such lists give a layout that is wrong, but reads no memory of others.
 *  Cost: a few passes over the lists; on CUDA two launches, and a radix sort where heads are tall.
 */
LayoutPtr layout_from_rows(const Tensor& row_offsets, const Tensor& columns,
                           const RowListExtents& extents);

/** @brief The layout of the blocks where `mask` is not zero, of which there are `nnz`.
 *
 *  Layout::from_mask counts them itself, for which it fetches the mask. Here the host waits for
 *  nothing, so that a mask which changes every step costs a few small launches.
 *  @param[in] mask [rows, cols] (one head) or [heads, rows, cols], any dtype, on any device
 *  @throws Error for another rank or block size; on the CPU also for another number of blocks. On
 *  CUDA such a mask gives a layout that is wrong, but reads no memory of others.
 *  Cost: a few passes over the mask, and layout_from_rows. */
LayoutPtr layout_from_mask(const Tensor& mask, int block, int64_t nnz);

/** @brief What the host knows of documents whose starts lie on a device. */
struct DocumentExtents {
  int64_t tokens = 0;  ///< of all documents
  int64_t nnz = 0;     ///< blocks of the layout
  int block = 32;      ///< elements a side of a block
  bool causal = false;
};

/** @brief The layout of patterns::documents, from starts that lie on a device.
 *
 *  The host waits for nothing, so that a batch which was packed there is used at once. The caller
 *  tells the extents, which the host could only learn by a wait.
 *  @param[in] starts i32 or i64 [documents + 1], ascending from 0 to the number of tokens
 *  (`cu_seqlens`), with any strides
 *  @throws Error for other shapes or dtypes; on the CPU also for other starts, or another number of
 *  blocks. On CUDA such starts give a layout that is wrong, but reads no memory of others.
 *  Cost: a few passes over rows and blocks, and layout_from_rows. */
LayoutPtr layout_from_documents(const Tensor& starts, const DocumentExtents& extents);

/// Each of the first two fills in the arrays by row of a layout, whose view holds the extents: of
/// dense lists, or of a dense mask [lines, cols] of bytes, neither of them 0. The third fills in
/// those by column, of any that are within the extents.
BS_BACKENDS(void layout_from_rows(const Tensor& row_offsets, const Tensor& columns,
                                  const LayoutArrays& arrays, Stream stream);
            void layout_from_mask(const Tensor& mask, const LayoutArrays& arrays, Stream stream);
            void list_columns(const LayoutArrays& arrays, Stream stream))

}  // namespace bs

#include <bs/kernels/layout_from_rows.h>

#include <bs/kernels/copy.h>

#include <limits>

namespace bs {

LayoutPtr layout_from_rows(const Tensor& row_offsets, const Tensor& columns,
                           const RowListExtents& extents) {
  constexpr const char* op = "layout_from_rows";
  const auto& [heads, rows, cols, block] = extents;
  check_same_device(op, row_offsets, columns);
  BS_CHECK(row_offsets.dtype() == i32 && columns.dtype() == i32,
           "{}: row_offsets are {} and columns {}, not i32", op, row_offsets.dtype(),
           columns.dtype());
  BS_CHECK(heads >= 0 && rows >= 0 && cols >= 0, "{}: negative extent: {} heads of {} x {} blocks",
           op, heads, rows, cols);
  BS_CHECK(row_offsets.rank() == 1 && row_offsets.numel() == int64_t{heads} * rows + 1,
           "{}: row_offsets {} are not [{} heads * {} rows + 1]", op, row_offsets.shape(), heads,
           rows);
  BS_CHECK(columns.rank() == 1 && columns.numel() <= std::numeric_limits<int32_t>::max(),
           "{}: columns {} are not [nnz] of 31 bits", op, columns.shape());
  BS_CHECK(columns.numel() == 0 || (rows > 0 && cols > 0 && heads > 0),
           "{}: {} columns of {} heads of {} x {} blocks", op, columns.numel(), heads, rows, cols);
  const LayoutArrays arrays({.block = block,
                             .heads = heads,
                             .rows = rows,
                             .cols = cols,
                             .nnz = static_cast<int32_t>(columns.numel())},
                            columns.device());
  BS_DISPATCH(columns.device(), layout_from_rows, contiguous(row_offsets), contiguous(columns),
              arrays);
  return Layout::from_arrays(arrays);
}

}  // namespace bs

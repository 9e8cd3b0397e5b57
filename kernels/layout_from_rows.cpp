#include <bs/kernels/layout_from_rows.h>

#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/scan.h>
#include <bs/kernels/where.h>

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

// A block's place is how many are before it; all that the mask lacks goes to a place behind the
// last.
LayoutPtr layout_from_mask(const Tensor& mask, int block, int64_t nnz) {
  constexpr const char* op = "layout_from_mask";
  BS_CHECK(mask.rank() == 2 || mask.rank() == 3,
           "{}: mask {} is not [rows, cols] or [heads, rows, cols]", op, mask.shape());
  BS_CHECK(is_block(block), "{}: block {} is none of 8, 16, 32, 64 and 128", op, block);
  const Shape shape = mask.rank() == 3 ? mask.shape() : Shape{1, mask.size(0), mask.size(1)};
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(shape[0] <= most && shape[1] <= most && shape[2] <= most && mask.numel() <= most,
           "{}: mask {} has more than 31 bits of blocks", op, mask.shape());
  BS_CHECK(nnz >= 0 && nnz <= mask.numel(), "{}: {} blocks of a mask {}", op, nnz, mask.shape());
  const RowListExtents extents{static_cast<int>(shape[0]), static_cast<int>(shape[1]),
                               static_cast<int>(shape[2]), block};
  const int64_t lines = shape[0] * shape[1], cols = shape[2];
  const Device device = mask.device();
  if (mask.numel() == 0)
    return layout_from_rows(zeros({lines + 1}, i32, device), zeros({0}, i32, device), extents);
  const Tensor kept = reshape(ne(mask, 0), {lines * cols});
  const Tensor count = cumsum(cast(kept, i64), 0);
  const Tensor ends = count.view({lines, cols}).select(1, cols - 1);
  const Tensor offsets = concat({zeros({1}, i64, device), ends}, 0);
  BS_CHECK(!device.is_cpu() || offsets.select(0, lines).item() == static_cast<double>(nnz),
           "{}: the mask has {} blocks, not {}", op, offsets.select(0, lines).item(), nnz);
  const Tensor places = where(kept, minimum(sub(count, 1), nnz), nnz);
  const Tensor numbers = arange(cols, i32, device).expand({lines, cols});
  const Tensor columns =
      scatter(zeros({nnz + 1}, i32, device), 0, places, reshape(numbers, {lines * cols}));
  return layout_from_rows(cast(offsets, i32), columns.slice(0, 0, nnz), extents);
}

}  // namespace bs

#include <bs/kernels/layout_from_rows.h>

#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/logic.h>
#include <bs/kernels/scan.h>
#include <bs/lib/integers.h>

#include <limits>

namespace bs {

namespace {

void check_documents(const char* op, const Tensor& starts, const DocumentExtents& extents) {
  const auto& [tokens, nnz, block, causal] = extents;
  BS_CHECK(starts.rank() == 1 && starts.numel() >= 1, "{}: starts {} are not [documents + 1]", op,
           starts.shape());
  if (starts.dtype() != i32 && starts.dtype() != i64)
    detail::unsupported_dtype(op, starts.dtype(), "i32 or i64");
  BS_CHECK(is_block(block), "{}: block {} is none of 8, 16, 32, 64 and 128", op, block);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  BS_CHECK(tokens >= 0 && tokens <= most && (tokens == 0 || starts.numel() > 1),
           "{}: {} tokens of {} documents", op, tokens, starts.numel() - 1);
  const int64_t rows = ceil_div(tokens, block);
  BS_CHECK(nnz >= rows && nnz <= most && nnz <= rows * rows, "{}: {} blocks of {} rows", op, nnz,
           rows);
  if (!starts.device().is_cpu()) return;
  const int64_t documents = starts.numel() - 1;
  const Tensor ascend = all(ge(starts.slice(0, 1, documents + 1), starts.slice(0, 0, documents)));
  BS_CHECK(starts.select(0, 0).item() == 0 && ascend.item() != 0 &&
               starts.select(0, documents).item() == static_cast<double>(tokens),
           "{}: starts do not ascend from 0 to {}", op, tokens);
}

}  // namespace

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
  BS_DISPATCH(columns.device(), list_columns, arrays);
  return Layout::from_arrays(arrays);
}

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
  const LayoutArrays arrays({.block = block,
                             .heads = static_cast<int>(shape[0]),
                             .rows = static_cast<int>(shape[1]),
                             .cols = static_cast<int>(shape[2]),
                             .nnz = static_cast<int32_t>(nnz)},
                            mask.device());
  if (mask.numel() == 0) {
    fill(arrays.memory, 0);
    return Layout::from_arrays(arrays);
  }
  const bool is_bytes = mask.dtype() == boolean || mask.dtype() == u8;
  const Tensor kept = contiguous(is_bytes ? mask : ne(mask, 0));
  BS_DISPATCH(mask.device(), layout_from_mask, kept.view({shape[0] * shape[1], shape[2]}), arrays);
  BS_DISPATCH(mask.device(), list_columns, arrays);
  return Layout::from_arrays(arrays);
}

// A place among starts is a count: of what ended before it, or began up to it.
LayoutPtr layout_from_documents(const Tensor& starts, const DocumentExtents& extents) {
  constexpr const char* op = "layout_from_documents";
  check_documents(op, starts, extents);
  const auto& [tokens, nnz, block, causal] = extents;
  const Device device = starts.device();
  const int64_t rows = ceil_div(tokens, block), documents = starts.numel() - 1;
  const int side = static_cast<int>(rows);
  const RowListExtents square{.rows = side, .cols = side, .block = block};
  if (rows == 0) return layout_from_rows(zeros({1}, i32, device), zeros({0}, i32, device), square);

  const Tensor all = cast(starts, i64);
  const Tensor begin_of = all.slice(0, 0, documents), end_of = all.slice(0, 1, documents + 1);
  const Tensor begins = mul(arange(rows, i64, device), block);
  const Tensor ends = minimum(add(begins, block), tokens);
  const Tensor first = gather(begin_of, 0, searchsorted(end_of, begins, true));
  const Tensor last = gather(end_of, 0, searchsorted(end_of, ends));
  const Tensor first_column = sub(searchsorted(begins, first, true), 1);
  const Tensor end_column = searchsorted(begins, causal ? ends : last);
  const Tensor count = cumsum(sub(end_column, first_column), 0);
  const Tensor offsets = concat({zeros({1}, i64, device), count}, 0);
  BS_CHECK(!device.is_cpu() || offsets.select(0, rows).item() == static_cast<double>(nnz),
           "{}: the documents have {} blocks, not {}", op, offsets.select(0, rows).item(), nnz);
  const Tensor numbers = arange(nnz, i64, device);
  const Tensor row_of = sub(searchsorted(offsets, numbers, true), 1);
  const Tensor before = sub(first_column, offsets.slice(0, 0, rows));
  const Tensor columns = add(gather(before, 0, row_of), numbers);
  return layout_from_rows(cast(offsets, i32), cast(columns, i32), square);
}

}  // namespace bs

#include <bs/kernels/layout_from_rows.h>

#include <algorithm>
#include <numeric>

namespace bs::cpu {

namespace {

void check_row(const int32_t* columns, int32_t begin, int32_t end, const LayoutView& v,
               int64_t line) {
  for (int32_t n = begin; n < end; ++n) {
    BS_CHECK(columns[n] >= 0 && columns[n] < v.cols, "layout_from_rows: row {} has column {} of {}",
             line, columns[n], v.cols);
    BS_CHECK(n == begin || columns[n - 1] < columns[n],
             "layout_from_rows: columns {} and {} of row {} do not ascend", columns[n - 1],
             columns[n], line);
  }
}

}  // namespace

void layout_from_rows(const Tensor& row_offsets, const Tensor& columns, const LayoutArrays& arrays,
                      Stream) {
  const LayoutView& v = arrays.view;
  const int64_t lines = int64_t{v.heads} * v.rows;
  const int32_t* offsets = row_offsets.data<int32_t>();
  const int32_t* cols = columns.data<int32_t>();
  BS_CHECK(
      offsets[0] == 0 && offsets[lines] == v.nnz && std::is_sorted(offsets, offsets + lines + 1),
      "layout_from_rows: row_offsets from {} to {} do not ascend from 0 to {}", offsets[0],
      offsets[lines], v.nnz);
  std::copy_n(offsets, lines + 1, arrays.writable(v.row_offsets));
  std::copy_n(cols, v.nnz, arrays.writable(v.col_of));
  int32_t* const head_of = arrays.writable(v.head_of);
  int32_t* const row_of = arrays.writable(v.row_of);
  for (int64_t line = 0; line < lines; ++line) {
    check_row(cols, offsets[line], offsets[line + 1], v, line);
    const auto head = static_cast<int32_t>(line / v.rows);
    const auto row = static_cast<int32_t>(line % v.rows);
    for (int32_t n = offsets[line]; n < offsets[line + 1]; ++n) {
      head_of[n] = head;
      row_of[n] = row;
    }
  }
}

void layout_from_mask(const Tensor& mask, const LayoutArrays& arrays, Stream) {
  const LayoutView& v = arrays.view;
  const auto* kept = static_cast<const uint8_t*>(mask.data());
  int32_t* const offsets = arrays.writable(v.row_offsets);
  int64_t count = 0;
  offsets[0] = 0;
  for (int64_t line = 0; line < mask.size(0); ++line, kept += v.cols) {
    for (int32_t col = 0; col < v.cols; ++col) {
      if (kept[col] == 0) continue;
      if (count < v.nnz) {
        arrays.writable(v.head_of)[count] = static_cast<int32_t>(line / v.rows);
        arrays.writable(v.row_of)[count] = static_cast<int32_t>(line % v.rows);
        arrays.writable(v.col_of)[count] = col;
      }
      ++count;
    }
    offsets[line + 1] = static_cast<int32_t>(count);
  }
  BS_CHECK(count == v.nnz, "layout_from_mask: the mask has {} blocks, not {}", count, v.nnz);
}

void list_columns(const LayoutArrays& arrays, Stream) {
  const LayoutView& v = arrays.view;
  const int64_t bins = int64_t{v.heads} * v.cols;
  const auto bin = [&](int32_t n) { return int64_t{v.head_of[n]} * v.cols + v.col_of[n]; };
  int32_t* const col_offsets = arrays.writable(v.col_offsets);
  std::fill_n(col_offsets, bins + 1, 0);
  for (int32_t n = 0; n < v.nnz; ++n) ++col_offsets[bin(n) + 1];
  std::partial_sum(col_offsets, col_offsets + bins + 1, col_offsets);
  const Tensor places = Tensor::empty({bins}, i32);
  int32_t* const next = places.data<int32_t>();
  std::copy_n(col_offsets, bins, next);
  int32_t* const transposed = arrays.writable(v.transposed);
  int32_t* const transposed_row = arrays.writable(v.transposed_row);
  for (int32_t n = 0; n < v.nnz; ++n) {
    const int32_t at = next[bin(n)]++;
    transposed[at] = n;
    transposed_row[at] = v.row_of[n];
  }
}

}  // namespace bs::cpu

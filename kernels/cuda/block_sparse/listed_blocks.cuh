#pragma once
// Where a layout's blocks are listed, by row and by column.
#include <bs/lib/layout.h>

namespace bs::cuda {

struct ListedBlocks {
  int32_t *head_of, *row_of, *col_of;

  explicit ListedBlocks(const LayoutArrays& of)
      : head_of(of.writable(of.view.head_of)),
        row_of(of.writable(of.view.row_of)),
        col_of(of.writable(of.view.col_of)) {}
  __device__ void list(int64_t n, int head, int row, int col) const {
    head_of[n] = head;
    row_of[n] = row;
    col_of[n] = col;
  }
};

struct ListedColumns {
  int32_t *col_offsets, *transposed, *transposed_row;

  explicit ListedColumns(const LayoutArrays& of)
      : col_offsets(of.writable(of.view.col_offsets)),
        transposed(of.writable(of.view.transposed)),
        transposed_row(of.writable(of.view.transposed_row)) {}
  __device__ void list(int64_t place, int block, int row) const {
    transposed[place] = block;
    transposed_row[place] = row;
  }
};

}  // namespace bs::cuda

#pragma once
/** @file Block-sparse products as their twins see them. The front door has resolved transposes into
 *  strides and orders, broadcasting into strides of 0, and gradients of repeated operands into sums
 *  over products. Three names, two problems: op(a) op(s) is (op(s)^T op(a)^T)^T, a dsd whose dense
 *  matrices are written with their strides exchanged. */
#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/strided.h>
#include <bs/lib/layout.h>

namespace bs {

/** @brief Steps between neighbours of a dense matrix, in elements; one of the two is 1. */
struct MatrixStrides {
  int64_t row = 0, col = 0;
};

/** @brief C (m x n) = sum of op(S) (m x k) B (k x n), for each matrix C of a batch. */
struct DsdProblem {
  const Layout* pattern = nullptr;
  LayoutView layout;        ///< of the pattern
  bool transposed = false;  ///< op(S) = S^T: its rows are the columns of the layout
  int64_t n = 0;
  MatrixStrides b, c;
  StridedLoop<4> batch;  ///< one entry a C: offsets of values, B and C, and the head
  StridedLoop<3> sum;    ///< one entry a product added into it: of values and B, and the head
  /// Of C; of C^T, which is contiguous then, where C's columns are not neighbours (c.col != 1).
  const BlockSparseEpilogue* epilogue = nullptr;
  bool tf32 = false;  ///< f32 operands may be rounded to TF32

  constexpr int32_t block_rows() const { return transposed ? layout.cols : layout.rows; }
  constexpr int64_t k() const {
    return int64_t{transposed ? layout.rows : layout.cols} * layout.block;
  }
  /// Whether heads are the last axis of the sum, else that of the batch.
  constexpr bool sums_heads() const {
    return layout.heads > 1 && sum.offset(2, sum.numel() - 1) != 0;
  }
};

/** @brief S = the blocks of the sum of A (m x k) B (k x n), for each S of a batch. m x n is the
 *  extent of one head. */
struct SddProblem {
  const Layout* pattern = nullptr;
  LayoutView layout;        ///< of the pattern
  int32_t longest_row = 0;  ///< blocks
  int64_t k = 0;
  MatrixStrides a, b;
  int64_t a_head = 0, b_head = 0;  ///< steps to the next head
  StridedLoop<3> batch;            ///< one entry an S: offsets of A, B and the values
  StridedLoop<2> sum;              ///< one entry a product added into it: offsets of A and B
  const BlockSparseEpilogue* epilogue = nullptr;
  bool tf32 = false;  ///< f32 operands may be rounded to TF32
};

}  // namespace bs

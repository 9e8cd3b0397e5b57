#pragma once
/** @file A block-sparse matrix: a Layout and the values of its blocks. */
#include <bs/lib/layout.h>

namespace bs {

/** @brief A batch of block-sparse matrices of one pattern.
 *
 *  `values` is [..., nnz, block, block], row-major inside a block, blocks in (head, row, column)
 *  order. A layout of one head serves any leading dimensions (batch, heads). A layout of H heads
 *  counts its heads' blocks within nnz, so only batch dimensions lead. */
struct SparseTensor {
  LayoutPtr layout;
  Tensor values;
};

/** @brief Throws an Error naming `op` unless values and layout belong together. */
void check_sparse(const char* op, const SparseTensor& s);

}  // namespace bs

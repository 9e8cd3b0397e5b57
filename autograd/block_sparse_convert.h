#pragma once
/** @file Differentiable conversion between block-sparse and dense. */
#include <bs/autograd/sparse_variable.h>

namespace bs {

/** @brief The dense matrix, zero where no block is stored; see kernels/block_sparse_convert.h. */
Variable to_dense(const SparseVariable& s);
/** @brief The blocks of a dense matrix that `layout` names. */
SparseVariable to_sparse(const Variable& dense, const LayoutPtr& layout);

}  // namespace bs

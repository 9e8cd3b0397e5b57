#pragma once
/** @file Differentiable block-sparse products; see kernels/block_sparse_matmul.h for shapes. */
#include <bs/autograd/sparse_variable.h>
#include <bs/kernels/block_sparse_matmul.h>

namespace bs {

/** @brief The blocks of op(a) op(b) that `layout` names. Saves each operand whose partner wants a
 *  gradient. */
SparseVariable sdd(const Variable& a, const Variable& b, const LayoutPtr& layout, Transpose t = {});
/** @brief op(s) op(b), dense. Saves likewise. */
Variable dsd(const SparseVariable& s, const Variable& b, Transpose t = {});
/** @brief op(a) op(s), dense. Saves likewise. */
Variable dds(const Variable& a, const SparseVariable& s, Transpose t = {});

}  // namespace bs

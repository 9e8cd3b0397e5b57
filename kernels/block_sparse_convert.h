#pragma once
/** @file Between block-sparse and dense matrices. Each function is the other's gradient. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief The dense matrix, zero where no block is stored.
 *  @param[in] s values [..., nnz, block, block] of any floating dtype
 *  @return [..., height, width] for a layout of one head, else [..., heads, height, width] */
Tensor to_dense(const SparseTensor& s);

/** @brief The blocks of a dense matrix that `layout` names; the others are dropped.
 *  @param[in] dense what to_dense would return for the result: any floating dtype, any strides
 *  @throws Error when the last axes are not those of the layout. */
SparseTensor to_sparse(const Tensor& dense, const LayoutPtr& layout);

/// Tensors are contiguous. to_dense writes every element; relayout, of values of any dtype, what
/// kernels/block_sparse_conv2d.h says.
BS_BACKENDS(void to_dense(const Tensor& values, const LayoutView& layout, const Tensor& dense,
                          Stream stream);
            void to_sparse(const Tensor& dense, const LayoutView& layout, const Tensor& values,
                           Stream stream);
            void relayout(const Tensor& values, const LayoutView& from, const LayoutView& to,
                          const Tensor& moved, Stream stream))

}  // namespace bs

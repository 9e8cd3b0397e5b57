#pragma once
/** @file The second half of an epilogue's reductions: partial results of tiles to one number each,
 *  added in an order that only their number decides. */
#include <bs/lib/layout.h>
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief out[batch, i] = sum or maximum over the parts of partial[batch, :, i].
 *  @param[in] partial f32 or f64, [batch, parts, length]
 *  @param[out] out of its dtype, [batch, length] */
void reduce_parts(const Tensor& partial, const Tensor& out, bool is_max, Stream stream);

/** @brief The same for the rows or columns of block-sparse matrices: over the blocks that each has.
 *  @param[in] partial of rows [batch, pieces of a block's columns, nnz * block]; of columns
 *             [batch, nnz * pieces of a block's rows, block]
 *  @param[in] layout on their device
 *  @param[in] over_columns whether to reduce rows
 *  @param[out] out [batch * heads, length]; what has no block gets 0 or -infinity */
void reduce_blocks(const Tensor& partial, const LayoutView& layout, bool over_columns,
                   const Tensor& out, bool is_max, Stream stream);

}  // namespace bs::cuda

#pragma once
/** @file Rows of a table looked up by number: index_select along the first axis of a matrix, for
 *  indices of any shape. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief y[..., :] = weight[indices[...], :].
 *  @param[in] weight [rows, width], floating
 *  @param[in] indices [...], i64 or i32, on the same device
 *  @throws Error for indices outside [0, rows) on the CPU; on CUDA such a row of y is NaN. */
Tensor embedding(const Tensor& weight, const Tensor& indices);

/** @brief dweight[i] = sum of dy over the places where the index is i; see index_select_backward.
 *  @param[in] dy [..., width], floating
 *  @param[in] rows of the table
 *  @param[in] padding_index a row that gets no gradient; -1 for none */
Tensor embedding_backward(const Tensor& dy, const Tensor& indices, int64_t rows,
                          int64_t padding_index = -1);

}  // namespace bs

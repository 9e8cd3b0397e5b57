#pragma once
/** @file Differentiable softmax of block-sparse rows; see kernels/block_sparse_softmax.h. */
#include <bs/autograd/sparse_variable.h>
#include <bs/kernels/block_sparse_softmax.h>

namespace bs {

/** @brief Softmax over the stored columns of each row that `options` keep. Saves its result.
 *  @param[in] bias takes the place of the option of that name, and gets a gradient
 *  @throws Error for a bias given twice. */
SparseVariable block_sparse_softmax(const SparseVariable& s,
                                    const BlockSparseSoftmaxOptions& options = {},
                                    const Variable& bias = {});

}  // namespace bs

#pragma once
/** @file The differentiable fully connected layer with a block-sparse weight; see
 *  kernels/block_sparse_linear.h. */
#include <bs/autograd/sparse_variable.h>
#include <bs/kernels/block_sparse_linear.h>

namespace bs {

/** @brief y = f(x W^T + bias), for x [..., in], a weight [out, in] of one head, bias [out] or
 *  undefined. Saves x, the weight, and of the activation its result or its argument. */
Variable block_sparse_linear(const Variable& x, const SparseVariable& weight,
                             const Variable& bias = {}, Activation activation = Activation::none);

}  // namespace bs

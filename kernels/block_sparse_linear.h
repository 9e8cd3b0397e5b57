#pragma once
/** @file The fully connected layer with a block-sparse weight, bias and activation in its product.
 */
#include <bs/kernels/activation.h>
#include <bs/kernels/linear.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief What block_sparse_linear computed. */
struct BlockSparseLinearResult {
  Tensor y;
  Tensor before;  ///< the activation's argument, where backward starts from it (silu, both gelu)
};

/** @brief y = f(x W^T + bias), one kernel: sums are rounded once, behind bias and activation.
 *  @param[in] x [..., in], floating, any strides; rows that are no one stride apart are copied
 *  @param[in] weight a matrix [out, in] of one head, of x's dtype
 *  @param[in] bias [out], of x's dtype, or undefined for none
 *  @param[in] keep whether `before` is wanted, too
 *  @return y [..., out]. Outputs of a row without blocks are f(bias).
 *  @throws Error when shapes do not match, or dtypes or devices differ. */
BlockSparseLinearResult block_sparse_linear(const Tensor& x, const SparseTensor& weight,
                                            const Tensor& bias = {},
                                            Activation activation = Activation::none,
                                            bool keep = true);

/** @brief Gradients: with e = dy f'(before), dx = e W, dW = the blocks of e^T x, dbias = the sum of
 *  e's rows.
 *  @param[in] result of the forward with the same arguments
 *  @return dx of x's shape, values of dW in stored block order, dbias; undefined if not wanted */
LinearGrads block_sparse_linear_backward(const Tensor& x, const SparseTensor& weight,
                                         const BlockSparseLinearResult& result, const Tensor& dy,
                                         Activation activation, LinearWants wants = {});

}  // namespace bs

#pragma once
/** @file Products of matrices. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief c = a b, batched.
 *  @param[in] a [..., m, k]; @param[in] b [..., k, n]: one floating dtype, leading axes broadcast.
 *    Any strides: a transposed view is multiplied as it lies. A 2-D b meets all rows of a in one
 *    product.
 *  @return c [..., m, n], contiguous; sums are kept in f32, in f64 for f64, and rounded once
 *  @throws Error for fewer than two axes, inner dimensions that differ, or leading axes that do not
 *    broadcast. Also for another dtype, or tensors that differ in dtype or device. */
Tensor matmul(const Tensor& a, const Tensor& b);

/** @name Gradients of c = a b
 *  Summed over the leading axes along which the operand, of shape `a_shape` or `b_shape`, was
 *  broadcast.
 *  @{ */
/** @brief da = dc b^T. */
Tensor matmul_backward_a(const Shape& a_shape, const Tensor& b, const Tensor& dc);
/** @brief db = a^T dc. */
Tensor matmul_backward_b(const Tensor& a, const Shape& b_shape, const Tensor& dc);
/** @} */

/** Backends take leading axes already broadcast (stride 0), and no extent of 0. */
BS_BACKENDS(void matmul(const Tensor& a, const Tensor& b, const Tensor& c, Stream stream))

}  // namespace bs

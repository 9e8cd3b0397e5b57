#pragma once
/** @file Softmax over the rows of block-sparse matrices. */
#include <bs/kernels/dispatch.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief What happens to scores before the softmax. */
struct BlockSparseSoftmaxOptions {
  double scale = 1;              ///< factor of the scores
  bool causal = false;           ///< hide what is above the diagonal: element column > element row
  Tensor key_padding_mask = {};  ///< boolean [width] or [batch, width], true for columns to keep;
                                 ///< batch is the first axis of values; undefined: all
  /** Added to scaled scores, in f32 (f64 for f64): floating, of a shape that broadcasts to that of
   *  to_dense(s). A relative position embedding, say; -infinity hides. */
  Tensor bias = {};
  Tensor key_bias = {};  ///< floating [width] or [batch, width], added likewise
  /** [height, width] for all matrices: boolean, true for what to keep; or floating, added. */
  Tensor attention_mask = {};
};

/** @brief y_ij = exp(scale x_ij - m_i) / sum_k exp(scale x_ik - m_i), m_i = max_k scale x_ik, over
 *  the stored columns of row i that the options keep. What no block stores counts as -infinity. A
 *  row left with nothing gives zeros, and zero gradients.
 *  @param[in] s values [..., nnz, block, block], floating
 *  @return a new matrix of the same layout, shape and dtype; sums are kept in f32, in f64 for f64
 *  @throws Error when values or mask do not fit. */
SparseTensor block_sparse_softmax(const SparseTensor& s,
                                  const BlockSparseSoftmaxOptions& options = {});

/** @brief The gradient of the bias: that of the scores, dense and summed over what `bias_shape`
 * shares. Neighbouring axes of the batch are summed as the gradient is computed.
 *  @param[in] y,dy as below
 *  @return of y's dtype, zero where no block is stored
 *  @throws Error when `bias_shape` does not broadcast to the dense matrix. */
Tensor block_sparse_softmax_bias_gradient(const SparseTensor& y, const Tensor& dy,
                                          const Shape& bias_shape);

/** @brief dx = scale * y * (dy - sum_k y_k dy_k), the vector-Jacobian product. Masks need not be
 *  known: y is zero where they hide.
 *  @param[in] y what block_sparse_softmax returned
 *  @param[in] dy gradient of its values, same shape and dtype
 *  @param[in] scale the option of that name
 *  @return the gradient of the values of s */
Tensor block_sparse_softmax_backward(const SparseTensor& y, const Tensor& dy, double scale = 1);

/// Tensors are contiguous and not empty; the mask, where there is one, is [matrices a row, width].
BS_BACKENDS(void block_sparse_softmax(const Tensor& x, const Layout& layout, const Tensor& y,
                                      const BlockSparseSoftmaxOptions& options, Stream stream);
            void block_sparse_softmax_backward(const Tensor& y, const Tensor& dy,
                                               const Layout& layout, const Tensor& dx, double scale,
                                               Stream stream))

/// y and dy [before, summed, after, nnz, block, block], with `summed` up to 4096; to ds [before,
/// after, nnz, block, block] of their dtype or of that of sums.
BS_BACKENDS(void block_sparse_softmax_bias_gradient(const Tensor& y, const Tensor& dy,
                                                    const Layout& layout, const Tensor& ds,
                                                    Stream stream))

}  // namespace bs

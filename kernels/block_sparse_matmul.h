#pragma once
/** @file Products with one block-sparse matrix: sdd, dsd and dds, named after what is (s)parse and
 *  what is (d)ense in result, left and right operand. Beside them are their gradients.
 *
 *  Conventions, for all of this file. op(X) is X, or X with its last two axes exchanged where
 *  Transpose says so; a layout describes the sparse matrix as it is stored. Operands are f64, f32,
 *  f16 or bf16, all of one dtype and device; sums are kept in f32, in f64 for f64, and rounded
 *  once. A dense operand is [..., rows, cols] with any strides. It is read where it lies when one
 *  of its last two strides is 1, else copied. Leading axes broadcast as in NumPy, by stride, not
 *  by copy:
 *  - a layout of one head serves any leading axes: values [..., nnz, b, b];
 *  - a layout of H > 1 heads wants H as the dense operand's axis before the last two, or 1 for all
 *    heads; values are [batch..., nnz, b, b] with the blocks of all heads in nnz.
 *  Rows and columns without a block are sums over nothing: zeros, to which an epilogue
 *  (ProductOptions) is applied as to others. Results are contiguous, and the same bit for bit
 *  whatever the number of threads.
 *  An infinity or NaN in a dense operand reaches the results that its products go into. Absent
 *  blocks keep it out of all others. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/dispatch.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief Which operands of a product are transposed on their last two axes: the left one (a), the
 *  right one (b). Written `dsd(s, x, {.a = true})`. */
struct Transpose {
  bool a = false;
  bool b = false;
};

/** @brief The blocks of op(a) op(b) that `layout` names; the others are not computed.
 *  @param[in] a op(a) is [..., layout height, k]
 *  @param[in] b op(b) is [..., k, layout width]
 *  @throws Error when shapes, dtypes or devices do not fit. 2 nnz block^2 k FLOPs a batch. */
SparseTensor sdd(const Tensor& a, const Tensor& b, const LayoutPtr& layout, Transpose t = {},
                 const ProductOptions& options = {});

/** @brief op(s) op(b), dense [..., m, n].
 *  @param[in] s op(s) is [..., m, k]
 *  @param[in] b op(b) is [..., k, n]
 *  @throws Error when shapes, dtypes or devices do not fit. 2 nnz block^2 n FLOPs a batch. */
Tensor dsd(const SparseTensor& s, const Tensor& b, Transpose t = {},
           const ProductOptions& options = {});

/** @brief op(a) op(s), dense [..., m, n].
 *  @param[in] a op(a) is [..., m, k]
 *  @param[in] s op(s) is [..., k, n]
 *  @throws Error when shapes, dtypes or devices do not fit. 2 nnz block^2 m FLOPs a batch. */
Tensor dds(const Tensor& a, const SparseTensor& s, Transpose t = {},
           const ProductOptions& options = {});

/** @name Gradients
 *  Each gives the gradient of one operand from `dc`, the gradient of the result, and the other
 *  operand. `t` is that of the forward product. A sparse gradient comes as values in stored block
 *  order. `a`, `b` and `values` are the shape of the operand whose gradient is asked for. Over axes
 *  along which it was repeated the gradient is summed, in the accumulators.
 *  @{ */
Tensor sdd_backward_a(const SparseTensor& dc, const Tensor& b, const Shape& a, Transpose t = {});
Tensor sdd_backward_b(const Tensor& a, const SparseTensor& dc, const Shape& b, Transpose t = {});
Tensor dsd_backward_s(const Tensor& dc, const Tensor& b, const LayoutPtr& layout,
                      const Shape& values, Transpose t = {});
Tensor dsd_backward_b(const SparseTensor& s, const Tensor& dc, const Shape& b, Transpose t = {});
Tensor dds_backward_a(const Tensor& dc, const SparseTensor& s, const Shape& a, Transpose t = {});
Tensor dds_backward_s(const Tensor& a, const Tensor& dc, const LayoutPtr& layout,
                      const Shape& values, Transpose t = {});
/** @} */

BS_BACKENDS(void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
                     Stream stream);
            void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
                     Stream stream))

}  // namespace bs

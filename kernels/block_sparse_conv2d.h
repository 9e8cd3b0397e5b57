#pragma once
/** @file Convolution whose weight has blocks: only some squares of output by input channels exist,
 *  for each place of the filter.
 *
 *  The weight is a matrix [K, R S C], of one head. Column (r S + s) C + c is channel c at place
 *  (r, s) of the filter. Blocks are `block` output by `block` input channels. */
#include <bs/kernels/conv2d.h>
#include <bs/kernels/dispatch.h>
#include <bs/lib/sparse_tensor.h>

namespace bs {

/** @brief The layout of a weight.
 *  @param[in] mask [K / block, C / block, R, S], any dtype; a block exists where it is not zero
 *  @throws Error for another rank or block size */
LayoutPtr conv2d_layout(const Tensor& mask, int block);

/** @brief The convolution of x, floating, any strides; see conv2d for the options.
 *  @param[in] weight [K, R S C], of x's dtype
 *  @param[in] kernel R and S
 *  @param[in] bias [K], or undefined
 *  @return y [N, K, P, Q] in x's format. Channels of a row without blocks are the bias. Sums are
 *  kept in f32, in f64 for f64, and rounded once.
 *  @throws Error when shapes do not match, dtypes or devices differ, or for groups.
 *  Cost: the products grow with the blocks, packing x does not: below a density of .3 the CPU takes
 *  more than the blocks' share. One kernel walks the blocks there are on the CPU, and on Hopper for
 *  blocks of 64 and 128 in f16 and bf16. It reads x in place where it is channels-last.
 *  Other GPUs and types gather R S times the pixels of some images at a time, but for a filter of
 *  1x1 with stride 1. */
Tensor block_sparse_conv2d(const Tensor& x, const SparseTensor& weight, Extent2 kernel,
                           const Conv2dOptions& options = {}, const Tensor& bias = {});
/** @brief The vector-Jacobian product in x.
 *  @return dx of `x_shape`, in dy's format. Where a GPU gathers pixels, the 16-bit products of each
 *  place of the filter are rounded, then summed in f32. */
Tensor block_sparse_conv2d_backward_x(const Tensor& dy, const SparseTensor& weight, Extent2 kernel,
                                      const Shape& x_shape, const Conv2dOptions& options = {});
/** @brief The vector-Jacobian product in the blocks of the weight; the same bits each time.
 *  @return values in stored block order */
Tensor block_sparse_conv2d_backward_w(const Tensor& x, const Tensor& dy, const LayoutPtr& layout,
                                      Extent2 kernel, const Conv2dOptions& options = {});

/// Tensors have any strides, but values and bias are contiguous; results have elements.
BS_BACKENDS(void block_sparse_conv2d(const Conv2dProblem& problem, const Tensor& x,
                                     const SparseTensor& weight, const Tensor& bias,
                                     const Tensor& y, Stream stream);
            void block_sparse_conv2d_backward_x(const Conv2dProblem& problem, const Tensor& dy,
                                                const SparseTensor& weight, const Tensor& dx,
                                                Stream stream);
            void block_sparse_conv2d_backward_w(const Conv2dProblem& problem, const Tensor& x,
                                                const Tensor& dy, const SparseTensor& dweight,
                                                Stream stream))

/** @brief The values under another layout of the same size: blocks that both have are kept, new
 *  ones are zero. Of a weight that is pruned and grown, or of what an optimiser keeps of it.
 *  @param[in] values [nnz of `from`, block, block]
 *  @throws Error where block, heads, rows or columns differ */
Tensor relayout(const Tensor& values, const LayoutPtr& from, const LayoutPtr& to);

}  // namespace bs

#pragma once
/** @file The differentiable convolution with a block-sparse weight; see
 *  kernels/block_sparse_conv2d.h. */
#include <bs/autograd/sparse_variable.h>
#include <bs/kernels/block_sparse_conv2d.h>

namespace bs {

/** @brief y = x * weight + bias; bias may be undefined. Saves x and the weight. */
Variable block_sparse_conv2d(const Variable& x, const SparseVariable& weight, Extent2 kernel,
                             const Variable& bias = {}, const Conv2dOptions& options = {});

}  // namespace bs

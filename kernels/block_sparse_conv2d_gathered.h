#pragma once
/** @file Block-sparse convolutions by products: the pixels that a filter sees become rows of a
 *  matrix, for some images at a time. What no kernel of a GPU's own takes. */
#include <bs/kernels/block_sparse_conv2d.h>

namespace bs {

/** @brief A problem that the front door has checked, with a batch that is not empty. The passes
 *  write results that are there. */
struct GatheredConv2d {
  const Conv2dProblem& problem;

  void forward(const Tensor& x, const SparseTensor& weight, const Tensor& bias,
               const Tensor& y) const;
  void backward_x(const Tensor& dy, const SparseTensor& weight, const Tensor& dx) const;
  void backward_w(const Tensor& x, const Tensor& dy, const SparseTensor& dweight) const;
};

}  // namespace bs

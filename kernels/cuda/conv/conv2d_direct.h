#pragma once
/** @file Convolutions of any strides, groups and types: a thread a sum, without tensor cores. */
#include <bs/kernels/conv2d.h>

namespace bs::cuda {

/** @name As bs::cuda's conv2d, conv2d_backward_x and conv2d_backward_w
 *  @{ */
void conv2d_direct(const Conv2dProblem& problem, const Tensor& x, const Tensor& weight,
                   const Conv2dEpilogue& epilogue, const Tensor& y, Stream stream);
void conv2d_direct_x(const Conv2dProblem& problem, const Tensor& dy, const Tensor& weight,
                     const Conv2dEpilogue& epilogue, const Tensor& dx, Stream stream);
void conv2d_direct_w(const Conv2dProblem& problem, const Tensor& x, const Tensor& dy,
                     const Tensor& dweight, Stream stream);
/** @} */

}  // namespace bs::cuda

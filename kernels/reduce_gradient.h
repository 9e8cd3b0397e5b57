#pragma once
/** @file Gradients of reductions in one pass: what the front doors of reduce.h and vector_norm.h
 *  call. */
#include <bs/kernels/dispatch.h>

namespace bs {

/// x and dx are of one floating dtype and shape. The others are in the dtype of sums, expanded to
/// that shape.
BS_BACKENDS(
    /// dx = (x - mean) factor
    void var_backward(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& dx,
                      Stream stream);
    /// dx = dy x / norm, and 0 where the norm is 0
    void vector_norm_backward(const Tensor& x, const Tensor& norm, const Tensor& dy,
                              const Tensor& dx, Stream stream);
    /// dx = dy exp(x - y), and 0 where x is -infinity
    void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                            Stream stream))

}  // namespace bs

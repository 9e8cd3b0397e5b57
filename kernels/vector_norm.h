#pragma once
/** @file Norms over axes, and the gradient of logsumexp. Floating, any strides; kept in
 *  f32 (f64 for f64) until the result is rounded. */
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief (sum |x|^p)^(1/p) over `axes`; the largest |x| for p = infinity.
 *  @throws Error unless p >= 1. */
Tensor vector_norm(const Tensor& x, double p = 2, const Axes& axes = {}, bool keepdim = false);
/** @brief dx; 0 where the norm is 0. @param[in] y the norm */
Tensor vector_norm_backward(const Tensor& x, const Tensor& y, const Tensor& dy, double p,
                            const Axes& axes, bool keepdim);

/** @brief The gradient of logsumexp: dx = dy exp(x - y), 0 where x is -infinity. */
Tensor logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                          bool keepdim);

}  // namespace bs

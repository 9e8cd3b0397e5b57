#pragma once
/** @file The fully connected layer. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief y = x W^T + bias.
 *  @param[in] x [..., in], floating, any strides
 *  @param[in] weight [out, in], of x's dtype, any strides
 *  @param[in] bias [out], or undefined for none
 *  @return y [..., out]; sums are kept in f32, in f64 for f64. All rows of x are one product.
 *  @throws Error when shapes do not match, or dtypes or devices differ. */
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/** @brief Gradients of linear; those not wanted are undefined. */
struct LinearGrads {
  Tensor x, weight, bias;
};
/** @brief Which gradients of linear are wanted. */
struct LinearWants {
  bool x = true, weight = true, bias = true;
};
/** @brief dx = dy W, dW = dy^T x, dbias = the sum of dy's rows.
 *  @param[in] x may be undefined where dW is not wanted
 *  @param[in] weight may be undefined where dx is not wanted
 *  @param[in] dy [..., out] */
LinearGrads linear_backward(const Tensor& x, const Tensor& weight, const Tensor& dy,
                            LinearWants wants = {});

/** Backends take x [rows, in] and y [rows, out], y contiguous, and no extent of 0. */
BS_BACKENDS(void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& y,
                        Stream stream))

}  // namespace bs

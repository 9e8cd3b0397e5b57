#pragma once
/** @file Convolution of sequences: that of images of one row; see conv2d.h for formats and sums.
 *
 *  y[n, k, l] = sum over c, s of weight[k, c, s] * x[n, g C/groups + c, l stride + s dilation -
 * left]
 */
#include <bs/kernels/conv2d.h>

namespace bs {

struct Conv1dOptions {
  int64_t stride = 1;
  int64_t left = 0, right = 0;  ///< zeros around x
  bool same = false;            ///< padding for ceil(L / stride) results; the odd zero is right
  int64_t dilation = 1;
  int64_t groups = 1;
};

/** @brief The convolution of x [N, C, L], floating, any strides.
 *  @param[in] weight [K, C / groups, S]
 *  @param[in] epilogue bias [K], residual of y's shape, activation
 *  @return y [N, K, (L + left + right - dilation (S - 1) - 1) / stride + 1]
 *  @throws Error as conv2d does */
Tensor conv1d(const Tensor& x, const Tensor& weight, const Conv1dOptions& options = {},
              const Conv2dEpilogue& epilogue = {});
/** @brief The vector-Jacobian product in x, of `x_shape`. */
Tensor conv1d_backward_x(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                         const Conv1dOptions& options = {});
/** @brief The vector-Jacobian product in the weight; the same bits each time. */
Tensor conv1d_backward_w(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                         const Conv1dOptions& options = {});

}  // namespace bs

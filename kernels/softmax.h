#pragma once
/** @file Softmax over the last axis. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief y_i = exp(x_i - max x) / sum_j exp(x_j - max x) over the last axis.
 *  @param[in] x [..., n], floating; contiguous
 *  @return y of x's shape and dtype; sums are kept in f32, in f64 for f64
 *  @throws Error for rank 0, another dtype, or a view with gaps. One read and one write of x. */
Tensor softmax(const Tensor& x);

/** @brief dx = y * (dy - sum_j y_j dy_j), the vector-Jacobian product of softmax.
 *  @param[in] y what softmax returned
 *  @param[in] dy gradient of y, same shape and dtype */
Tensor softmax_backward(const Tensor& y, const Tensor& dy);

BS_BACKENDS(void softmax(const Tensor& x, const Tensor& y, Stream stream);
            void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx,
                                  Stream stream))

}  // namespace bs

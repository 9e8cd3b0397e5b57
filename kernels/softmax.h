#pragma once
/** @file Softmax and its logarithm over one axis. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief y_i = exp(x_i - max x) / sum_j exp(x_j - max x) over `axis`.
 *  @param[in] x floating, any strides
 *  @return y of x's shape and dtype, dense; sums are kept in f32, in f64 for f64. A row of nothing
 *  but -infinity gives NaN, as in PyTorch.
 *  @throws Error for an axis out of range or another dtype. Over the last axis of a dense x it is
 *  one read and one write; other axes are brought there, which is two copies more. */
Tensor softmax(const Tensor& x, int axis = -1);
/** @brief dx = y * (dy - sum_j y_j dy_j), the vector-Jacobian product of softmax.
 *  @param[in] y what softmax returned
 *  @param[in] dy gradient of y, same shape and dtype */
Tensor softmax_backward(const Tensor& y, const Tensor& dy, int axis = -1);

/** @brief y_i = x_i - max x - log(sum_j exp(x_j - max x)) over `axis`; see softmax. */
Tensor log_softmax(const Tensor& x, int axis = -1);
/** @brief dx = dy - exp(y) * sum_j dy_j.
 *  @param[in] y what log_softmax returned */
Tensor log_softmax_backward(const Tensor& y, const Tensor& dy, int axis = -1);

/// Dense tensors, over the last axis.
BS_BACKENDS(void softmax(const Tensor& x, const Tensor& y, Stream stream);
            void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx,
                                  Stream stream);
            void log_softmax(const Tensor& x, const Tensor& y, Stream stream);
            void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx,
                                      Stream stream))

}  // namespace bs

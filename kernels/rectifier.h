#pragma once
/** @file Relatives of relu: activation functions that pass large numbers and stop small ones.
 *
 *  x has any strides and any floating dtype, which the result keeps; 16-bit types compute in f32.
 *  One read of x and one write of the result.
 *  @throws Error for a dtype that is not floating, or operands of a backward that do not match. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief x where x > 0, else slope x. */
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
/** @brief x where x > 0, else alpha (e^x - 1) (Clevert et al., arXiv:1511.07289). */
Tensor elu(const Tensor& x, double alpha = 1);
/** @brief log(1 + e^(beta x)) / beta. @throws Error unless beta > 0. */
Tensor softplus(const Tensor& x, double beta = 1);
/** @brief x tanh(softplus(x)) (Misra, arXiv:1908.08681). */
Tensor mish(const Tensor& x);
/** @brief x min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244). */
Tensor hardswish(const Tensor& x);

/** @name Vector-Jacobian products
 *  x is the input of the forward.
 *  @{ */
Tensor leaky_relu_backward(const Tensor& x, const Tensor& dy, double slope);
Tensor elu_backward(const Tensor& x, const Tensor& dy, double alpha);
Tensor softplus_backward(const Tensor& x, const Tensor& dy, double beta);
Tensor mish_backward(const Tensor& x, const Tensor& dy);
Tensor hardswish_backward(const Tensor& x, const Tensor& dy);
/** @} */

BS_BACKENDS(void leaky_relu(const Tensor& x, const Tensor& y, double slope, Stream stream);
            void elu(const Tensor& x, const Tensor& y, double alpha, Stream stream);
            void softplus(const Tensor& x, const Tensor& y, double beta, Stream stream);
            void mish(const Tensor& x, const Tensor& y, Stream stream);
            void hardswish(const Tensor& x, const Tensor& y, Stream stream);
            void leaky_relu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                     double slope, Stream stream);
            void elu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double alpha,
                              Stream stream);
            void softplus_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double beta,
                                   Stream stream);
            void mish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream);
            void hardswish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx,
                                    Stream stream))

}  // namespace bs

#pragma once
/** @file Activation functions, element by element.
 *
 *  x has any strides (a view with gaps is made dense first) and any floating dtype, which the
 * result keeps; 16-bit types compute in f32. One read of x and one write of the result.
 *  @throws Error for a dtype that is not floating, or operands of a backward that do not match. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief Which formula gelu computes. */
enum class Gelu : uint8_t {
  erf,  ///< x Phi(x), Phi being the distribution of the standard normal
  tanh  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), the approximation of the paper
};

/** @brief What an operation does with its sums before it stores them, by the formulas below. */
enum class Activation : uint8_t { none, relu, tanh, sigmoid, silu, gelu, gelu_tanh };
std::string to_string(Activation activation);

Tensor tanh(const Tensor& x);
/** @brief 1 / (1 + e^-x). */
Tensor sigmoid(const Tensor& x);
/** @brief max(x, 0); NaN stays NaN. */
Tensor relu(const Tensor& x);
/** @brief Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415). */
Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);
/** @brief x sigmoid(x). */
Tensor silu(const Tensor& x);

/** @name Vector-Jacobian products
 *  x is the input, y the result of the forward.
 *  @{ */
/** @brief dx = dy (1 - y^2). */
Tensor tanh_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = dy y (1 - y). */
Tensor sigmoid_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = dy where y > 0, else 0. */
Tensor relu_backward(const Tensor& y, const Tensor& dy);
/** @brief erf: dx = dy (Phi(x) + x Phi'(x)); tanh: the derivative of the approximation. */
Tensor gelu_backward(const Tensor& x, const Tensor& dy, Gelu form = Gelu::erf);
/** @brief dx = dy s (1 + x (1 - s)), s = sigmoid(x). */
Tensor silu_backward(const Tensor& x, const Tensor& dy);
/** @brief That of `activation`, of what it needs: x for silu and gelu, y for the others; the other
 *  one may be undefined. */
Tensor activation_backward(Activation activation, const Tensor& x, const Tensor& y,
                           const Tensor& dy);
/** @} */

BS_BACKENDS(void tanh(const Tensor& x, const Tensor& y, Stream stream);
            void sigmoid(const Tensor& x, const Tensor& y, Stream stream);
            void relu(const Tensor& x, const Tensor& y, Stream stream);
            void gelu(const Tensor& x, const Tensor& y, Gelu form, Stream stream);
            void silu(const Tensor& x, const Tensor& y, Stream stream);
            void tanh_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream);
            void sigmoid_backward(const Tensor& y, const Tensor& dy, const Tensor& dx,
                                  Stream stream);
            void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream);
            void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Gelu form,
                               Stream stream);
            void silu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream))

}  // namespace bs

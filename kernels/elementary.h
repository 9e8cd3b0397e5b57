#pragma once
/** @file Elementary functions of one number, element by element.
 *
 *  x may have any strides; a view with gaps is made dense first. Integers and bool are converted to
 *  f32; 16-bit floats compute in f32. One read of x and one write of the result. */
#include <bs/kernels/dispatch.h>

namespace bs {

Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
/** @brief The error function. */
Tensor erf(const Tensor& x);
/** @brief log(1 + x), exact for small x. */
Tensor log1p(const Tensor& x);
/** @brief e^x - 1, exact for small x. */
Tensor expm1(const Tensor& x);

/** @name Vector-Jacobian products of those that are more than one operation
 *  x is the input, y the result of the forward.
 *  @{ */
/** @brief dx = dy (1 + y^2). */
Tensor tan_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = dy 2 / sqrt(pi) e^(-x^2). */
Tensor erf_backward(const Tensor& x, const Tensor& dy);
/** @} */

BS_BACKENDS(void sin(const Tensor& x, const Tensor& y, Stream stream);
            void cos(const Tensor& x, const Tensor& y, Stream stream);
            void tan(const Tensor& x, const Tensor& y, Stream stream);
            void erf(const Tensor& x, const Tensor& y, Stream stream);
            void log1p(const Tensor& x, const Tensor& y, Stream stream);
            void expm1(const Tensor& x, const Tensor& y, Stream stream);
            void tan_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream);
            void erf_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream))

}  // namespace bs

#pragma once
/** @file Functions of one number, element by element.
 *
 *  x may have any strides; a view with gaps is made dense first. Integers and bool are converted to
 *  f32, except by neg, abs and clamp, which keep integers (of u8, neg wraps round). These two
 * refuse bool, of which clamp makes i64. 16-bit floats compute in f32. One read of x and one write
 * of the result. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

#include <limits>

namespace bs {

Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
/** @brief 1 / sqrt(x). */
Tensor rsqrt(const Tensor& x);
/** @brief 1 / x. */
Tensor reciprocal(const Tensor& x);
/** @brief min(max(x, low), high); NaN stays NaN. Either bound may be infinite.
 *  @throws Error when low > high. */
Tensor clamp(const Tensor& x, double low, double high);

inline Tensor operator-(const Tensor& x) { return neg(x); }

/** @name Vector-Jacobian products
 *  x is the input, y the result of the forward; that of exp is y * dy, that of log is dy / x.
 *  @{ */
/** @brief dx = dy sign(x), 0 at 0. */
Tensor abs_backward(const Tensor& x, const Tensor& dy);
/** @brief dx = dy / (2 y). */
Tensor sqrt_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = -dy y^3 / 2. */
Tensor rsqrt_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = -dy y^2. */
Tensor reciprocal_backward(const Tensor& y, const Tensor& dy);
/** @brief dx = dy where low <= x <= high, else 0. */
Tensor clamp_backward(const Tensor& x, const Tensor& dy, double low, double high);
/** @} */

BS_BACKENDS(void neg(const Tensor& x, const Tensor& y, Stream stream);
            void abs(const Tensor& x, const Tensor& y, Stream stream);
            void exp(const Tensor& x, const Tensor& y, Stream stream);
            void log(const Tensor& x, const Tensor& y, Stream stream);
            void sqrt(const Tensor& x, const Tensor& y, Stream stream);
            void rsqrt(const Tensor& x, const Tensor& y, Stream stream);
            void reciprocal(const Tensor& x, const Tensor& y, Stream stream);
            void clamp(const Tensor& x, const Tensor& y, double low, double high, Stream stream);
            void abs_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream);
            void sqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream);
            void rsqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream);
            void reciprocal_backward(const Tensor& y, const Tensor& dy, const Tensor& dx,
                                     Stream stream);
            void clamp_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double low,
                                double high, Stream stream))

}  // namespace bs

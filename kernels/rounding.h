#pragma once
/** @file Rounding, signs, remainders, and which numbers are finite.
 *
 *  Any strides. 16-bit floats compute in f32. Integers are whole already: they come back as copies
 *  of their dtype, and are always finite. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief The largest whole number that is not above x. */
Tensor floor(const Tensor& x);
/** @brief The smallest whole number that is not below x. */
Tensor ceil(const Tensor& x);
/** @brief The nearest whole number; halves go to the even one. */
Tensor round(const Tensor& x);
/** @brief x without its fraction. */
Tensor trunc(const Tensor& x);
/** @brief -1, 0 or 1; 0 for NaN. Integers keep their dtype, bool too. */
Tensor sign(const Tensor& x);

/** @brief What is left of a after whole multiples of b, with b's sign, as Python's a % b. Broadcast
 *  and promoted as in binary.h. By 0 it is NaN, and for integers 0. */
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Scalar b);
/** @brief db = -dy floor(a / b), of the result's shape. */
Tensor remainder_backward_b(const Tensor& a, const Tensor& b, const Tensor& dy);

/** @name Which elements are NaN, infinite, neither: bool.
 *  @{ */
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
/** @} */

/// Dense operands; floats, except that remainder takes i32 and i64 too.
BS_BACKENDS(void floor(const Tensor& x, const Tensor& y, Stream stream);
            void ceil(const Tensor& x, const Tensor& y, Stream stream);
            void round(const Tensor& x, const Tensor& y, Stream stream);
            void trunc(const Tensor& x, const Tensor& y, Stream stream);
            void sign(const Tensor& x, const Tensor& y, Stream stream);
            void remainder(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void remainder_backward_b(const Operand& a, const Operand& b, const Tensor& dy,
                                      const Tensor& db, Stream stream);
            void isinf(const Tensor& x, const Tensor& y, Stream stream);
            void isfinite(const Tensor& x, const Tensor& y, Stream stream))

}  // namespace bs

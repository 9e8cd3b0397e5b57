#pragma once
/** @file Arithmetic on two operands, with broadcasting and type promotion.
 *
 *  Shapes broadcast as in NumPy. Two tensors compute in promote(a.dtype, b.dtype). But a tensor
 *  without axes beside one with some takes that one's dtype, unless its kind (bool, integers,
 *  floating) is higher. A number takes the tensor's dtype (see Scalar). u8 and bool compute as i32
 *  and are converted back. 16-bit floats compute in f32 and round once. Any strides.
 *  @throws Error when shapes do not broadcast, devices differ, or an integer beside i32 or u8 is
 *  beyond what i32 holds. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

namespace bs {

Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, Scalar b);
/** @brief a / b; integral operands are divided in f32. */
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Scalar b);
Tensor div(Scalar a, const Tensor& b);
/** @brief a to the power of b. Integers wrap around; to a negative power they give what is left of
 *  the fraction: 0, or +-1 for bases of size 1. */
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Scalar b);
Tensor pow(Scalar a, const Tensor& b);
/** @brief The smaller of both; NaN when either is NaN. */
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, Scalar b);
/** @brief The larger of both; NaN when either is NaN. */
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Scalar b);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

/** @name Gradients of one operand, of the result's shape
 *  Operands may be tensors or numbers, as in the forward; floating dtypes. sum_to brings the result
 *  to the operand's own shape. Those of add, sub and mul, and that of div for a, are products,
 *  quotients or dy itself.
 *  @{ */
/** @brief db of y = a / b: -dy a / b^2. */
Tensor div_backward_b(const Operand& a, const Tensor& b, const Tensor& dy);
/** @brief da of y = a^b: dy b a^(b-1), and 0 where b is 0. */
Tensor pow_backward_a(const Tensor& a, const Operand& b, const Tensor& dy);
/** @brief db of y = a^b: dy y log a, and 0 where a is 0 and b >= 0. */
Tensor pow_backward_b(const Operand& a, const Tensor& b, const Tensor& dy);
/** @brief da of minimum(a, b): dy where a < b, half of it where they are equal. */
Tensor minimum_backward(const Tensor& a, const Operand& b, const Tensor& dy);
/** @brief da of maximum(a, b): dy where a > b, half of it where they are equal. */
Tensor maximum_backward(const Tensor& a, const Operand& b, const Tensor& dy);
/** @} */

BS_BACKENDS(void add(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void sub(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void mul(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void div(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void pow(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void minimum(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void maximum(const Operand& a, const Operand& b, const Tensor& y, Stream stream);
            void div_backward_b(const Operand& a, const Operand& b, const Tensor& dy,
                                const Tensor& db, Stream stream);
            void pow_backward_a(const Operand& a, const Operand& b, const Tensor& dy,
                                const Tensor& da, Stream stream);
            void pow_backward_b(const Operand& a, const Operand& b, const Tensor& dy,
                                const Tensor& db, Stream stream);
            void minimum_backward(const Operand& a, const Operand& b, const Tensor& dy,
                                  const Tensor& da, Stream stream);
            void maximum_backward(const Operand& a, const Operand& b, const Tensor& dy,
                                  const Tensor& da, Stream stream))

}  // namespace bs

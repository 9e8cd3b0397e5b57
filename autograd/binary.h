#pragma once
/** @file Differentiable arithmetic with broadcasting; see kernels/binary.h. Gradients have their
 *  operand's shape and dtype. */
#include <bs/autograd/variable.h>
#include <bs/kernels/operand.h>

namespace bs {

Variable add(const Variable& a, const Variable& b);
Variable add(const Variable& a, Scalar b);
Variable sub(const Variable& a, const Variable& b);
Variable sub(const Variable& a, Scalar b);
Variable sub(Scalar a, const Variable& b);
/** @brief Saves both operands. */
Variable mul(const Variable& a, const Variable& b);
Variable mul(const Variable& a, Scalar b);
/** @brief Saves both operands. */
Variable div(const Variable& a, const Variable& b);
Variable div(const Variable& a, Scalar b);
Variable div(Scalar a, const Variable& b);
/** @brief Saves both operands. */
Variable pow(const Variable& a, const Variable& b);
Variable pow(const Variable& a, Scalar b);
Variable pow(Scalar a, const Variable& b);
/** @brief Saves both operands. Equal ones get half the gradient each. */
Variable minimum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, Scalar b);
/** @brief Saves both operands. Equal ones get half the gradient each. */
Variable maximum(const Variable& a, const Variable& b);
Variable maximum(const Variable& a, Scalar b);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator+(const Variable& a, Scalar b) { return add(a, b); }
inline Variable operator+(Scalar a, const Variable& b) { return add(b, a); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator-(const Variable& a, Scalar b) { return sub(a, b); }
inline Variable operator-(Scalar a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator*(const Variable& a, Scalar b) { return mul(a, b); }
inline Variable operator*(Scalar a, const Variable& b) { return mul(b, a); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator/(const Variable& a, Scalar b) { return div(a, b); }
inline Variable operator/(Scalar a, const Variable& b) { return div(a, b); }

}  // namespace bs

#pragma once
/** @file Products named by their axes. A Tensor gives a Tensor. */
#include <bs/autograd/variable.h>

#include <initializer_list>
#include <span>
#include <string>

namespace bs {

/** @brief The product of all operands, summed over letters that the result lacks.
 *
 *  @code einsum("bhid,bhjd->bhij", {q, k}) @endcode
 *  One letter an axis. A letter twice in one operand means the diagonal. "..." stands for any axes,
 *  which broadcast from the right; axes of 1 broadcast too. Without "->" the result has those of
 * the ellipsis and then the letters that occur once, in order. Operands are multiplied from left to
 *  right, each pair as one batched matmul.
 *  @throws Error for a letter twice in the result, for extents that differ, and for an operand of
 *  another rank than its letters. */
Variable einsum(const std::string& equation, std::span<const Variable> operands);
/** @brief sum(a b) of two vectors. */
Variable dot(const Variable& a, const Variable& b);
/** @brief The matrix a_i b_j of two vectors. */
Variable outer(const Variable& a, const Variable& b);
/** @brief a [batch, m, k] times b [batch, k, n]; nothing broadcasts. */
Variable bmm(const Variable& a, const Variable& b);

Tensor einsum(const std::string& equation, std::span<const Tensor> operands);
inline Variable einsum(const std::string& equation, std::initializer_list<Variable> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}
inline Tensor einsum(const std::string& equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}
inline Tensor dot(const Tensor& a, const Tensor& b) { return dot(Variable(a), b).data(); }
inline Tensor outer(const Tensor& a, const Tensor& b) { return outer(Variable(a), b).data(); }
inline Tensor bmm(const Tensor& a, const Tensor& b) { return bmm(Variable(a), b).data(); }

}  // namespace bs

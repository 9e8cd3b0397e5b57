#pragma once
/** @file Elements in another order, repeated, or cut to a triangle. A Tensor gives a Tensor. */
#include <bs/autograd/variable.h>

#include <vector>

namespace bs {

/** @brief The axes named run backwards. */
Variable flip(const Variable& x, const Dims& axes);
/** @brief Elements move by `shift` along `axis`; those that leave the end come in at the front. */
Variable roll(const Variable& x, int64_t shift, int axis);
/** @brief x `counts` times behind each other, one count an axis; axes in front are new. */
Variable tile(const Variable& x, const Dims& counts);
/** @brief tile() by its name in PyTorch. */
inline Variable repeat(const Variable& x, const Dims& counts) { return tile(x, counts); }
/** @brief Each position of `axis` `count` times in a row. */
Variable repeat_interleave(const Variable& x, int64_t count, int axis);
/** @brief x [..., r, c] with zeros where column - row > diagonal. */
Variable tril(const Variable& x, int64_t diagonal = 0);
/** @brief x [..., r, c] with zeros where column - row < diagonal. */
Variable triu(const Variable& x, int64_t diagonal = 0);
/** @brief Of a vector the square matrix with it on the diagonal; of a matrix its diagonal. */
Variable diag(const Variable& x, int64_t diagonal = 0);
/** @brief Vectors of n_0, n_1, ... elements as tensors [n_0, n_1, ...], each changing along its own
 *  axis (indexing="ij"): views. */
std::vector<Tensor> meshgrid(const std::vector<Tensor>& vectors);

inline Tensor flip(const Tensor& x, const Dims& axes) { return flip(Variable(x), axes).data(); }
inline Tensor roll(const Tensor& x, int64_t shift, int axis) {
  return roll(Variable(x), shift, axis).data();
}
inline Tensor tile(const Tensor& x, const Dims& counts) { return tile(Variable(x), counts).data(); }
inline Tensor repeat(const Tensor& x, const Dims& counts) { return tile(x, counts); }
inline Tensor repeat_interleave(const Tensor& x, int64_t count, int axis) {
  return repeat_interleave(Variable(x), count, axis).data();
}
inline Tensor tril(const Tensor& x, int64_t diagonal = 0) {
  return tril(Variable(x), diagonal).data();
}
inline Tensor triu(const Tensor& x, int64_t diagonal = 0) {
  return triu(Variable(x), diagonal).data();
}
inline Tensor diag(const Tensor& x, int64_t diagonal = 0) {
  return diag(Variable(x), diagonal).data();
}

}  // namespace bs

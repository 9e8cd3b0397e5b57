#include <bs/autograd/where.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {
/// The gradient for `to`, an operand of `shape` and `dtype`, from one of the result's.
Tensor fitted(const Tensor& gradient, const Shape& shape, DType dtype) {
  return cast(sum_to(gradient, shape), dtype);
}
}  // namespace

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  return tape().record(
      "where", {a, b}, where(condition, a.data(), b.data()),
      [condition = SavedTensor(condition), wants_a = a.requires_grad(), wants_b = b.requires_grad(),
       shape_a = a.shape(), shape_b = b.shape(), dtype_a = a.dtype(),
       dtype_b = b.dtype()](const Tensor& dy) {
        return Grads{wants_a ? fitted(where(condition, dy, 0), shape_a, dtype_a) : Tensor(),
                     wants_b ? fitted(where(condition, 0, dy), shape_b, dtype_b) : Tensor()};
      });
}

Variable where(const Tensor& condition, const Variable& a, Scalar b) {
  return tape().record(
      "where", {a}, where(condition, a.data(), b),
      [condition = SavedTensor(condition), shape = a.shape(), dtype = a.dtype()](const Tensor& dy) {
        return Grads{fitted(where(condition, dy, 0), shape, dtype)};
      });
}

Variable where(const Tensor& condition, Scalar a, const Variable& b) {
  return tape().record(
      "where", {b}, where(condition, a, b.data()),
      [condition = SavedTensor(condition), shape = b.shape(), dtype = b.dtype()](const Tensor& dy) {
        return Grads{fitted(where(condition, 0, dy), shape, dtype)};
      });
}

}  // namespace bs

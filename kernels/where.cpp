#include <bs/kernels/where.h>

#include <bs/kernels/copy.h>

namespace bs {

namespace {

Tensor where_any(const Tensor& condition, const Operand& a, const Operand& b) {
  const Common c = common("where", a, b);
  check_number("where", a, c.dtype);
  check_number("where", b, c.dtype);
  BS_CHECK(condition.device() == c.device, "where: tensors on {} and {}", condition.device(),
           c.device);
  const Shape shape = broadcast_shapes("where", condition.shape(), c.shape);
  Tensor y = Tensor::empty(shape, c.dtype, c.device);
  if (y.numel() > 0)
    BS_DISPATCH(c.device, where, cast(condition, boolean).expand(shape), expand(a, c.dtype, shape),
                expand(b, c.dtype, shape), y);
  return y;
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return where_any(condition, a, b);
}
Tensor where(const Tensor& condition, const Tensor& a, Scalar b) {
  return where_any(condition, a, b);
}
Tensor where(const Tensor& condition, Scalar a, const Tensor& b) {
  return where_any(condition, a, b);
}

}  // namespace bs

#include <bs/kernels/operand.h>

#include <bs/kernels/copy.h>

namespace bs {

Common common(const char* op, const Operand& a, const Operand& b) {
  const Tensor& x = a.tensor;
  const Tensor& y = b.tensor;
  if (!y.defined()) return {x.shape(), b.number.promote(x.dtype()), x.device()};
  if (!x.defined()) return {y.shape(), a.number.promote(y.dtype()), y.device()};
  check_same_device(op, x, y);
  return {broadcast_shapes(op, x.shape(), y.shape()), promote(x.dtype(), y.dtype()), x.device()};
}

Operand expand(const Operand& x, DType dtype, const Shape& shape) {
  if (!x.tensor.defined()) return x;
  return cast(x.tensor, dtype).expand(shape);
}

}  // namespace bs

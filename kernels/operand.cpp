#include <bs/kernels/operand.h>

#include <bs/kernels/copy.h>

#include <limits>
#include <utility>

namespace bs {

namespace {

/// Bool, integers, floating numbers.
int kind(DType dtype) { return is_floating(dtype) ? 2 : dtype == boolean ? 0 : 1; }

/// Beside a tensor with axes, one without gives way unless its kind is higher.
DType common_dtype(const Tensor& x, const Tensor& y) {
  if ((x.rank() == 0) != (y.rank() == 0)) {
    const DType many = (x.rank() == 0 ? y : x).dtype(), one = (x.rank() == 0 ? x : y).dtype();
    if (kind(many) >= kind(one)) return many;
  }
  return promote(x.dtype(), y.dtype());
}

}  // namespace

bool is_in_range(const Operand& x, DType dtype) {
  if (!x.is_number || !x.number.is_integral() || (dtype != i32 && dtype != u8)) return true;
  return std::in_range<int32_t>(x.number.to<int64_t>());
}

void check_number(const char* op, const Operand& x, DType dtype) {
  BS_CHECK(is_in_range(x, dtype), "{}: number {} beside {} is not in [{}, {}]", op,
           x.number.to<int64_t>(), dtype, std::numeric_limits<int32_t>::min(),
           std::numeric_limits<int32_t>::max());
}

Common common(const char* op, const Operand& a, const Operand& b) {
  const Tensor& x = a.tensor;
  const Tensor& y = b.tensor;
  BS_CHECK((a.is_number || x.defined()) && (b.is_number || y.defined()),
           "{}: a Tensor is undefined: nothing was assigned to it", op);
  if (!y.defined()) return {x.shape(), b.number.promote(x.dtype()), x.device()};
  if (!x.defined()) return {y.shape(), a.number.promote(y.dtype()), y.device()};
  check_same_device(op, x, y);
  return {broadcast_shapes(op, x.shape(), y.shape()), common_dtype(x, y), x.device()};
}

Operand expand(const Operand& x, DType dtype, const Shape& shape) {
  if (!x.tensor.defined() || (x.tensor.dtype() == dtype && x.tensor.shape() == shape)) return x;
  return cast(x.tensor, dtype).expand(shape);
}

}  // namespace bs

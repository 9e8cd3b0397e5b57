#include <bs/kernels/rounding.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>

namespace bs {

#define BS_ROUNDING(function)                                    \
  Tensor function(const Tensor& x) {                             \
    if (!is_floating(x.dtype())) return clone(x);                \
    const Tensor in = elementwise_operand(x);                    \
    Tensor y = Tensor::empty_like(in);                           \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y); \
    return y;                                                    \
  }
BS_ROUNDING(floor)
BS_ROUNDING(ceil)
BS_ROUNDING(round)
BS_ROUNDING(trunc)
#undef BS_ROUNDING

Tensor sign(const Tensor& x) {
  if (!is_floating(x.dtype()))
    return cast(sub(cast(gt(x, 0), i32), cast(lt(x, 0), i32)), x.dtype());
  const Tensor in = elementwise_operand(x);
  Tensor y = Tensor::empty_like(in);
  if (y.numel() > 0) BS_DISPATCH(y.device(), sign, in, y);
  return y;
}

namespace {

Tensor remainder_any(const Operand& a, const Operand& b) {
  const Common c = common("remainder", a, b);
  check_number("remainder", b, c.dtype);
  const DType compute = c.dtype == u8 || c.dtype == boolean ? i32 : c.dtype;
  const Tensor y = Tensor::empty(c.shape, compute, c.device);
  if (y.numel() > 0)
    BS_DISPATCH(c.device, remainder, expand(a, compute, c.shape), expand(b, compute, c.shape), y);
  return cast(y, c.dtype);
}

}  // namespace

Tensor remainder(const Tensor& a, const Tensor& b) { return remainder_any(a, b); }
Tensor remainder(const Tensor& a, Scalar b) { return remainder_any(a, b); }

Tensor remainder_backward_b(const Tensor& a, const Tensor& b, const Tensor& dy) {
  const char* op = "remainder_backward_b";
  const Common c = common(op, a, b);
  BS_CHECK(dy.shape() == c.shape, "{}: dy of shape {} for a result of shape {}", op, dy.shape(),
           c.shape);
  check_same_device(op, a, dy);
  Tensor db = Tensor::empty_like(dy);
  if (db.numel() > 0)
    BS_DISPATCH(c.device, remainder_backward_b, expand(a, dy.dtype(), c.shape),
                expand(b, dy.dtype(), c.shape), dy, db);
  return db;
}

Tensor isnan(const Tensor& x) { return ne(x, x); }

#define BS_OF_FLOATS(function, of_integers)                      \
  Tensor function(const Tensor& x) {                             \
    if (!is_floating(x.dtype())) return of_integers(x, x);       \
    const Tensor in = elementwise_operand(x);                    \
    Tensor y = Tensor::empty(x.shape(), boolean, x.device());    \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y); \
    return y;                                                    \
  }
BS_OF_FLOATS(isinf, ne)
BS_OF_FLOATS(isfinite, eq)
#undef BS_OF_FLOATS

}  // namespace bs

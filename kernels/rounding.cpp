#include <bs/kernels/rounding.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/unary.h>

#include <limits>

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
  return -(dy * floor(div(a, b)));
}

Tensor isnan(const Tensor& x) { return ne(x, x); }
Tensor isinf(const Tensor& x) { return eq(abs(x), std::numeric_limits<double>::infinity()); }
Tensor isfinite(const Tensor& x) { return lt(abs(x), std::numeric_limits<double>::infinity()); }

}  // namespace bs

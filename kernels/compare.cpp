#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

/// A call of a backend: both operands of one shape and of a dtype that is compared.
struct Call {
  Operand a, b;
  Tensor y;
};

Call prepare(const char* op, const Operand& a, const Operand& b) {
  const Common c = common(op, a, b);
  const DType dtype = c.dtype == u8 || c.dtype == boolean ? i32 : c.dtype;
  return {expand(a, dtype, c.shape), expand(b, dtype, c.shape),
          Tensor::empty(c.shape, boolean, c.device)};
}

#define BS_COMPARE(function)                                                                \
  Tensor function##_any(const char* op, const Operand& a, const Operand& b) {               \
    const Call call = prepare(op, a, b);                                                    \
    if (call.y.numel() > 0) BS_DISPATCH(call.y.device(), function, call.a, call.b, call.y); \
    return call.y;                                                                          \
  }
BS_COMPARE(eq)
BS_COMPARE(ne)
BS_COMPARE(lt)
BS_COMPARE(le)
#undef BS_COMPARE

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return eq_any("eq", a, b); }
Tensor eq(const Tensor& a, Scalar b) { return eq_any("eq", a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return ne_any("ne", a, b); }
Tensor ne(const Tensor& a, Scalar b) { return ne_any("ne", a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return lt_any("lt", a, b); }
Tensor lt(const Tensor& a, Scalar b) { return lt_any("lt", a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return le_any("le", a, b); }
Tensor le(const Tensor& a, Scalar b) { return le_any("le", a, b); }
// What is not less is not greater or equal where NaN is involved: swap, never negate.
Tensor gt(const Tensor& a, const Tensor& b) { return lt_any("gt", b, a); }
Tensor gt(const Tensor& a, Scalar b) { return lt_any("gt", b, a); }
Tensor ge(const Tensor& a, const Tensor& b) { return le_any("ge", b, a); }
Tensor ge(const Tensor& a, Scalar b) { return le_any("ge", b, a); }

}  // namespace bs

#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

/// A call of a backend: both operands of one shape and of a dtype that is compared.
struct Call {
  Operand a, b;
  Tensor y;
};

/// Whether it is a tensor of these bytes, or a number that is one of them.
bool is_among(DType bytes, const Operand& x) {
  if (!x.is_number) return x.tensor.dtype() == bytes;
  const auto number = x.number.to<double>();
  return x.number.is_integral() && number >= 0 && number <= (bytes == boolean ? 1 : 255);
}

Call prepare(const char* op, const Operand& a, const Operand& b) {
  const Common c = common(op, a, b);
  DType dtype = c.dtype == u8 || c.dtype == boolean ? i32 : c.dtype;
  for (const DType bytes : {u8, boolean})
    if (is_among(bytes, a) && is_among(bytes, b)) dtype = bytes;
  if (!is_in_range(a, dtype) || !is_in_range(b, dtype)) dtype = i64;
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

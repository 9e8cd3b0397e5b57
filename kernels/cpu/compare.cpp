#include <bs/kernels/compare.h>
#include <bs/kernels/cpu/elementwise.h>

namespace bs::cpu {

namespace {

template <class F>
void compare(const char* op, const F& f, const Operand& a, const Operand& b, const Tensor& y) {
  const DType dtype = a.tensor.defined() ? a.tensor.dtype() : b.tensor.dtype();
  if (is_floating(dtype)) {
    visit_wide(op, dtype, [&]<class W>(Type<W>) { map<bool, W, W>(f, y, a, b); });
  } else if (dtype == boolean) {
    map<bool, bool, bool>(f, y, a, b);
  } else if (dtype == u8) {
    map<bool, uint8_t, uint8_t>(f, y, a, b);
  } else {
    visit_index(op, dtype, [&]<class W>(Type<W>) { map<bool, W, W>(f, y, a, b); });
  }
}

}  // namespace

void eq(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  compare(
      "eq", [](auto p, auto q) { return p == q; }, a, b, y);
}

void ne(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  compare(
      "ne", [](auto p, auto q) { return p != q; }, a, b, y);
}

void lt(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  compare(
      "lt", [](auto p, auto q) { return p < q; }, a, b, y);
}

void le(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  compare(
      "le", [](auto p, auto q) { return p <= q; }, a, b, y);
}

}  // namespace bs::cpu

#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/rounding.h>

#include <cmath>

namespace bs::cpu {

namespace {

template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& y) {
  visit_wide(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W>(f, y, x); });
}

}  // namespace

void floor(const Tensor& x, const Tensor& y, Stream) {
  run(
      "floor", [](auto v) { return std::floor(v); }, x, y);
}

void ceil(const Tensor& x, const Tensor& y, Stream) {
  run(
      "ceil", [](auto v) { return std::ceil(v); }, x, y);
}

void round(const Tensor& x, const Tensor& y, Stream) {
  run(
      "round", [](auto v) { return std::nearbyint(v); }, x, y);
}

void trunc(const Tensor& x, const Tensor& y, Stream) {
  run(
      "trunc", [](auto v) { return std::trunc(v); }, x, y);
}

void sign(const Tensor& x, const Tensor& y, Stream) {
  run(
      "sign", []<class W>(W v) { return v > 0   ? W(1)
                                        : v < 0 ? W(-1)
                                                : W(0); }, x, y);
}

void remainder(const Operand& a, const Operand& b, const Tensor& y, Stream) {
  const auto f = []<class W>(W p, W q) {
    W r = 0;
    if constexpr (std::is_integral_v<W>) {
      if (q == 0 || q == -1) return W(0);  // the lowest integer has no quotient by -1
      r = static_cast<W>(p % q);
    } else {
      r = std::fmod(p, q);
    }
    return r != 0 && (r < 0) != (q < 0) ? static_cast<W>(r + q) : r;
  };
  if (is_floating(y.dtype()))
    return visit_wide("remainder", y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
  visit_index("remainder", y.dtype(), [&]<class W>(Type<W>) { map<W, W, W>(f, y, a, b); });
}

}  // namespace bs::cpu

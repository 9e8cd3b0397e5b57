#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/elementary.h>

#include <cmath>

namespace bs::cpu {

namespace {

template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& y) {
  visit_wide(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W>(f, y, x); });
}

}  // namespace

void sin(const Tensor& x, const Tensor& y, Stream) {
  run(
      "sin", [](auto v) { return std::sin(v); }, x, y);
}

void cos(const Tensor& x, const Tensor& y, Stream) {
  run(
      "cos", [](auto v) { return std::cos(v); }, x, y);
}

void tan(const Tensor& x, const Tensor& y, Stream) {
  run(
      "tan", [](auto v) { return std::tan(v); }, x, y);
}

void erf(const Tensor& x, const Tensor& y, Stream) {
  run(
      "erf", [](auto v) { return std::erf(v); }, x, y);
}

void log1p(const Tensor& x, const Tensor& y, Stream) {
  run(
      "log1p", [](auto v) { return std::log1p(v); }, x, y);
}

void expm1(const Tensor& x, const Tensor& y, Stream) {
  run(
      "expm1", [](auto v) { return std::expm1(v); }, x, y);
}

}  // namespace bs::cpu

#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/float_bits.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/unary.h>

#include <cmath>

namespace bs::cpu {

namespace {

template <class F>
void arithmetic(const char* op, const F& f, const Tensor& x, const Tensor& y) {
  if (is_floating(y.dtype())) return map_floats(op, f, x, y);
  visit_index(op, y.dtype(), [&]<class W>(Type<W>) { map<W, W>(f, y, x); });
}

/// The bound as a W: beyond an integer's range it is the end of the range.
template <class W>
W bound(double value) {
  using Limits = std::numeric_limits<W>;
  if (std::is_floating_point_v<W>) return static_cast<W>(value);
  if (value <= static_cast<double>(Limits::lowest())) return Limits::lowest();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<W>(value);
}

}  // namespace

void neg(const Tensor& x, const Tensor& y, Stream) {
  if (is_low_precision(y.dtype())) return map_bits([](uint16_t v) { return v ^ 0x8000; }, y, x);
  // 0 - x rather than -x for integers, as unsigned: the lowest one has no opposite.
  const auto f = []<class W>(W v) {
    if constexpr (std::is_integral_v<W>) {
      return static_cast<W>(std::make_unsigned_t<W>(0) - static_cast<std::make_unsigned_t<W>>(v));
    } else {
      return -v;
    }
  };
  arithmetic("neg", f, x, y);
}

void abs(const Tensor& x, const Tensor& y, Stream) {
  if (is_low_precision(y.dtype())) return map_bits([](uint16_t v) { return v & 0x7fff; }, y, x);
  const auto f = []<class W>(W v) {
    if constexpr (std::is_integral_v<W>) {
      return v < 0 ? static_cast<W>(0 - static_cast<std::make_unsigned_t<W>>(v)) : v;
    } else {
      return std::fabs(v);
    }
  };
  arithmetic("abs", f, x, y);
}

void exp(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "exp", [](auto v) { return math::exp(v); }, x, y);
}

void log(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "log", [](auto v) { return math::log(v); }, x, y);
}

void sqrt(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "sqrt", [](auto v) { return std::sqrt(v); }, x, y);
}

void rsqrt(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "rsqrt", [](auto v) { return 1 / std::sqrt(v); }, x, y);
}

void reciprocal(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "reciprocal", [](auto v) { return 1 / v; }, x, y);
}

void clamp(const Tensor& x, const Tensor& y, double low, double high, Stream) {
  const auto f = [=]<class W>(W v) {
    const W l = bound<W>(low);
    const W h = bound<W>(high);
    return v < l ? l : v > h ? h : v;
  };
  arithmetic("clamp", f, x, y);
}

void abs_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = []<class W>(W v, W d) { return v > 0 ? d : v < 0 ? -d : W(0); };
  map_floats("abs_backward", f, x, dy, dx);
}

void sqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  map_floats(
      "sqrt_backward", [](auto v, auto d) { return d / (2 * v); }, y, dy, dx);
}

void rsqrt_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = []<class W>(W v, W d) { return W(-0.5) * d * v * v * v; };
  map_floats("rsqrt_backward", f, y, dy, dx);
}

void reciprocal_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  map_floats(
      "reciprocal_backward", [](auto v, auto d) { return -d * v * v; }, y, dy, dx);
}

void clamp_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double low, double high,
                    Stream) {
  const auto f = [=]<class W>(W v, W d) { return v >= W(low) && v <= W(high) ? d : W(0); };
  map_floats("clamp_backward", f, x, dy, dx);
}

}  // namespace bs::cpu

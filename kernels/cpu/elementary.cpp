#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_functions.h>
#include <bs/kernels/elementary.h>

#include <cmath>
#include <numbers>

namespace bs::cpu {

namespace {

/// Functions of angles, of which those beyond some turns are the standard library's.
struct OfAngle {
  static bool holds(float x) { return !(std::fabs(x) > math::most_turned); }
  static bool holds(double) { return true; }
};
struct Sin : OfAngle {
  template <class W>
  W operator()(W x) const {
    return math::sin(x);
  }
  template <class W>
  W beyond(W x) const {
    return std::sin(x);
  }
};
struct Cos : OfAngle {
  template <class W>
  W operator()(W x) const {
    return math::cos(x);
  }
  template <class W>
  W beyond(W x) const {
    return std::cos(x);
  }
};
struct Tan : OfAngle {
  template <class W>
  W operator()(W x) const {
    return math::tan(x);
  }
  template <class W>
  W beyond(W x) const {
    return std::tan(x);
  }
};

}  // namespace

void sin(const Tensor& x, const Tensor& y, Stream) { map_floats("sin", Sin(), x, y); }

void cos(const Tensor& x, const Tensor& y, Stream) { map_floats("cos", Cos(), x, y); }

void tan(const Tensor& x, const Tensor& y, Stream) { map_floats("tan", Tan(), x, y); }

void erf(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "erf", [](auto v) { return math::erf(v); }, x, y);
}

void log1p(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "log1p", [](auto v) { return math::log1p(v); }, x, y);
}

void expm1(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "expm1", [](auto v) { return math::expm1(v); }, x, y);
}

void tan_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  map_floats(
      "tan_backward", [](auto v, auto d) { return d * (1 + v * v); }, y, dy, dx);
}

void erf_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = []<class W>(W v, W d) {
    return d * (math::exp(-(v * v)) * W(2 * std::numbers::inv_sqrtpi));
  };
  map_floats("erf_backward", f, x, dy, dx);
}

}  // namespace bs::cpu

#include <bs/kernels/activation.h>
#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/float_bits.h>
#include <bs/kernels/cpu/normal_math.h>

namespace bs::cpu {

namespace {

// The approximation is x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), since
// 1 + tanh(u) = 2 sigmoid(2 u); this form keeps its precision where 1 + tanh(u) vanishes.
constexpr double two_slope = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double cubic = 0.044715;

}  // namespace

void tanh(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "tanh", [](auto v) { return math::tanh(v); }, x, y);
}

void sigmoid(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "sigmoid", [](auto v) { return math::sigmoid(v); }, x, y);
}

void relu(const Tensor& x, const Tensor& y, Stream) {
  if (is_low_precision(y.dtype())) {
    const uint16_t infinity = infinity_bits(y.dtype());
    return map_bits([=](uint16_t v) { return is_negative(v, infinity) ? 0 : v; }, y, x);
  }
  map_floats(
      "relu", []<class W>(W v) { return v < 0 ? W(0) : v; }, x, y);
}

void gelu(const Tensor& x, const Tensor& y, Gelu form, Stream) {
  if (form == Gelu::erf && is_low_precision(y.dtype()))
    return map<float, float>([](float v) { return v * math::coarse_normal_cdf(v); }, y, x);
  if (form == Gelu::erf)
    return map_floats(
        "gelu", [](auto v) { return v * math::normal_cdf(v); }, x, y);
  const auto f = []<class W>(W v) {
    return v * math::sigmoid(W(two_slope) * v * (1 + W(cubic) * v * v));
  };
  map_floats("gelu", f, x, y);
}

void silu(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "silu", [](auto v) { return v * math::sigmoid(v); }, x, y);
}

void tanh_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  map_floats(
      "tanh_backward", [](auto v, auto d) { return d * (1 - v * v); }, y, dy, dx);
}

void sigmoid_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  map_floats(
      "sigmoid_backward", [](auto v, auto d) { return d * v * (1 - v); }, y, dy, dx);
}

void relu_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream) {
  if (is_low_precision(dx.dtype())) {
    const uint16_t infinity = infinity_bits(dx.dtype());
    const auto f = [=](uint16_t v, uint16_t d) { return is_positive(v, infinity) ? d : 0; };
    return map_bits(f, dx, y, dy);
  }
  map_floats(
      "relu_backward", []<class W>(W v, W d) { return v > 0 ? d : W(0); }, y, dy, dx);
}

void gelu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Gelu form, Stream) {
  if (form == Gelu::erf) {
    const auto f = [](auto v, auto d) {
      const auto normal = math::normal(v);
      return d * (normal.cdf + v * normal.pdf);
    };
    return map_floats("gelu_backward", f, x, dy, dx);
  }
  const auto f = []<class W>(W v, W d) {
    const W s = math::sigmoid(W(two_slope) * v * (1 + W(cubic) * v * v));
    const W slope = W(two_slope) * (1 + 3 * W(cubic) * v * v);
    return d * (s + v * s * (1 - s) * slope);
  };
  map_floats("gelu_backward", f, x, dy, dx);
}

void silu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = [](auto v, auto d) {
    const auto s = math::sigmoid(v);
    return d * s * (1 + v * (1 - s));
  };
  map_floats("silu_backward", f, x, dy, dx);
}

}  // namespace bs::cpu

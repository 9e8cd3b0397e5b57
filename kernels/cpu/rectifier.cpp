#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/cpu/vector_math.h>
#include <bs/kernels/rectifier.h>

namespace bs::cpu {

namespace {

// What a choice is made of is computed before it. Of a product by a captured number on one side
// g++ makes a branch, and then no vectors.

/// tanh(log(1 + e^x)) = (p^2 - 1) / (p^2 + 1) with p = 1 + e^x, in terms of e^-|x|.
template <class W>
W tanh_of_softplus(W x) {
  const W e = math::exp(-std::abs(x));
  // Multiplied out: no difference of numbers that are nearly equal.
  const W up = x > 0 ? 1 + 2 * e : e * (e + 2);
  const W down = x > 0 ? up + 2 * e * e : up + 2;
  return up / down;
}

}  // namespace

void leaky_relu(const Tensor& x, const Tensor& y, double slope, Stream) {
  const auto f = [=]<class W>(W v) {
    const W below = W(slope) * v;
    return v > 0 ? v : below;
  };
  map_floats("leaky_relu", f, x, y);
}

void elu(const Tensor& x, const Tensor& y, double alpha, Stream) {
  const auto f = [=]<class W>(W v) {
    const W below = W(alpha) * math::expm1(v);
    return v > 0 ? v : below;
  };
  map_floats("elu", f, x, y);
}

void softplus(const Tensor& x, const Tensor& y, double beta, Stream) {
  const auto f = [=]<class W>(W v) {
    const W rest = math::log1p(math::exp(-std::abs(W(beta) * v)));  // the product may be infinite
    return (v < 0 ? W(0) : v) + rest / W(beta);
  };
  map_floats("softplus", f, x, y);
}

void mish(const Tensor& x, const Tensor& y, Stream) {
  map_floats(
      "mish", [](auto v) { return v * tanh_of_softplus(v); }, x, y);
}

void hardswish(const Tensor& x, const Tensor& y, Stream) {
  const auto f = []<class W>(W v) { return v < -3 ? W(0) : v > 3 ? v : v * (v + 3) * W(1.0 / 6); };
  map_floats("hardswish", f, x, y);
}

void leaky_relu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double slope,
                         Stream) {
  const auto f = [=]<class W>(W v, W d) {
    const W below = W(slope) * d;
    return v > 0 ? d : below;
  };
  map_floats("leaky_relu_backward", f, x, dy, dx);
}

void elu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double alpha, Stream) {
  const auto f = [=]<class W>(W v, W d) {
    const W below = W(alpha) * math::exp(v) * d;
    return v > 0 ? d : below;
  };
  map_floats("elu_backward", f, x, dy, dx);
}

void softplus_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double beta, Stream) {
  const auto f = [=]<class W>(W v, W d) { return d * math::sigmoid(W(beta) * v); };
  map_floats("softplus_backward", f, x, dy, dx);
}

void mish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = [](auto v, auto d) {
    const auto t = tanh_of_softplus(v);
    return d * (t + v * math::sigmoid(v) * (1 - t * t));
  };
  map_floats("mish_backward", f, x, dy, dx);
}

void hardswish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream) {
  const auto f = []<class W>(W v, W d) {
    return v < -3 ? W(0) : v > 3 ? d : d * (2 * v + 3) * W(1.0 / 6);
  };
  map_floats("hardswish_backward", f, x, dy, dx);
}

}  // namespace bs::cpu

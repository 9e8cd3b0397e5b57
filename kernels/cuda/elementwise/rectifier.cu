#include <bs/kernels/rectifier.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>

namespace bs::cuda {

namespace {

template <class T>
struct LeakyRelu {
  using W = device::wide<T>;
  W slope;
  __device__ W operator()(W x) const { return x > 0 ? x : slope * x; }
  __device__ W operator()(W x, W dy) const { return x > 0 ? dy : slope * dy; }
};
template <class T>
struct Elu {
  using W = device::wide<T>;
  W alpha;
  __device__ W operator()(W x) const {
    const W below = alpha * expm1_of<T>(x);
    return x > 0 ? x : below;
  }
  __device__ W operator()(W x, W dy) const {
    return x > 0 ? dy : alpha * device::exp_of<T>(x) * dy;
  }
};
template <class T>
struct Softplus {
  using W = device::wide<T>;
  W beta, share;  ///< share = 1 / beta: a product costs a third of a quotient
  __device__ W operator()(W x) const {
    const W rest = device::log1p_of<T>(device::exp_of<T>(-::abs(beta * x)));  // of infinity too
    return (x < 0 ? W(0) : x) + rest * share;
  }
  __device__ W operator()(W x, W dy) const { return dy * device::sigmoid_of<T>(beta * x); }
};
/// tanh(log(1 + e^x)) = (p^2 - 1) / (p^2 + 1) with p = 1 + e^x, in terms of e^-|x|.
template <class T, class W = wide<T>>
__device__ W tanh_of_softplus(W x) {
  const W e = device::exp_of<T>(-::abs(x));
  // Multiplied out: no difference of numbers that are nearly equal.
  const W up = x > 0 ? 1 + 2 * e : e * (e + 2);
  const W down = x > 0 ? up + 2 * e * e : up + 2;
  return quotient_of<T>(up, down);
}
template <class T>
struct Mish {
  using W = device::wide<T>;
  __device__ W operator()(W x) const { return x * tanh_of_softplus<T>(x); }
  __device__ W operator()(W x, W dy) const {
    const W t = tanh_of_softplus<T>(x);
    return dy * (t + quotient_of<T>(x, 1 + device::exp_of<T>(-x)) * (1 - t * t));
  }
};
template <class T>
struct Hardswish {
  using W = device::wide<T>;
  __device__ W operator()(W x) const {
    return x < -3 ? W(0) : x > 3 ? x : x * (x + 3) * W(1.0 / 6);
  }
  __device__ W operator()(W x, W dy) const {
    return x < -3 ? W(0) : x > 3 ? dy : dy * (2 * x + 3) * W(1.0 / 6);
  }
};

/// y = F{parameters...}(x...), all of y's dtype.
template <template <class> class F, class... P, class... X>
void run(const char* op, const Tensor& y, Stream stream, std::tuple<P...> parameters,
         const X&... x) {
  visit_floating(op, y.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto f =
        std::apply([](auto... p) { return F<D>{static_cast<device::wide<D>>(p)...}; }, parameters);
    map_alike<T>(op, f, y, stream, x...);
  });
}

}  // namespace

void leaky_relu(const Tensor& x, const Tensor& y, double slope, Stream stream) {
  run<LeakyRelu>("leaky_relu", y, stream, std::tuple(slope), x);
}

void leaky_relu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double slope,
                         Stream stream) {
  run<LeakyRelu>("leaky_relu_backward", dx, stream, std::tuple(slope), x, dy);
}

void elu(const Tensor& x, const Tensor& y, double alpha, Stream stream) {
  run<Elu>("elu", y, stream, std::tuple(alpha), x);
}

void elu_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double alpha,
                  Stream stream) {
  run<Elu>("elu_backward", dx, stream, std::tuple(alpha), x, dy);
}

void softplus(const Tensor& x, const Tensor& y, double beta, Stream stream) {
  run<Softplus>("softplus", y, stream, std::tuple(beta, 1 / beta), x);
}

void softplus_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, double beta,
                       Stream stream) {
  run<Softplus>("softplus_backward", dx, stream, std::tuple(beta, 1 / beta), x, dy);
}

void mish(const Tensor& x, const Tensor& y, Stream stream) {
  run<Mish>("mish", y, stream, std::tuple(), x);
}

void mish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<Mish>("mish_backward", dx, stream, std::tuple(), x, dy);
}

void hardswish(const Tensor& x, const Tensor& y, Stream stream) {
  run<Hardswish>("hardswish", y, stream, std::tuple(), x);
}

void hardswish_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<Hardswish>("hardswish_backward", dx, stream, std::tuple(), x, dy);
}

}  // namespace bs::cuda

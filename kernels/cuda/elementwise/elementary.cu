#include <bs/kernels/elementary.h>
#include <bs/kernels/cuda/elementwise.cuh>
#include <bs/kernels/cuda/elementwise/elementary.cuh>

#include <numbers>

namespace bs::cuda {

namespace {

// Functions of angles, which in 16 bits are CUDA's of f32 beyond some turns: out of line, for few
// come there.
template <class T>
__device__ bool is_near(wide<T> x) {
  return !is_16_bit<T> || fabsf(x) <= most_angle;
}
template <class T>
struct Sin {
  __device__ wide<T> near(wide<T> x, bool& holds) const {
    holds &= is_near<T>(x);
    return sin_of<T>(x);
  }
  static __device__ __noinline__ wide<T> beyond(wide<T> x) { return ::sin(x); }
};
template <class T>
struct Cos {
  __device__ wide<T> near(wide<T> x, bool& holds) const {
    holds &= is_near<T>(x);
    return cos_of<T>(x);
  }
  static __device__ __noinline__ wide<T> beyond(wide<T> x) { return ::cos(x); }
};
template <class T>
struct Tan {
  __device__ wide<T> near(wide<T> x, bool& holds) const {
    holds &= is_near<T>(x);
    return tan_of<T>(x);
  }
  static __device__ __noinline__ wide<T> beyond(wide<T> x) { return ::tan(x); }
};
template <class T>
struct Erf {
  __device__ wide<T> operator()(wide<T> x) const { return erf_of<T>(x); }
};
template <class T>
struct Log1p {
  __device__ wide<T> operator()(wide<T> x) const { return log_of_one_plus<T>(x); }
};
template <class T>
struct Expm1 {
  __device__ wide<T> operator()(wide<T> x) const { return expm1_of<T>(x); }
};

template <class T>
struct TanBackward {
  __device__ wide<T> operator()(wide<T> y, wide<T> dy) const { return dy * (1 + y * y); }
};
template <class T>
struct ErfBackward {
  __device__ wide<T> operator()(wide<T> x, wide<T> dy) const {
    return dy * (device::exp_of<T>(-(x * x)) * wide<T>(2 * std::numbers::inv_sqrtpi));
  }
};

/// y = F(x...), all of y's dtype.
template <template <class> class F, class... X>
void run(const char* op, const Tensor& y, Stream stream, const X&... x) {
  visit_floating(op, y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, F<device_type<T>>{}, y, stream, x...); });
}

}  // namespace

void sin(const Tensor& x, const Tensor& y, Stream stream) { run<Sin>("sin", y, stream, x); }

void cos(const Tensor& x, const Tensor& y, Stream stream) { run<Cos>("cos", y, stream, x); }

void tan(const Tensor& x, const Tensor& y, Stream stream) { run<Tan>("tan", y, stream, x); }

void erf(const Tensor& x, const Tensor& y, Stream stream) { run<Erf>("erf", y, stream, x); }

void log1p(const Tensor& x, const Tensor& y, Stream stream) { run<Log1p>("log1p", y, stream, x); }

void expm1(const Tensor& x, const Tensor& y, Stream stream) { run<Expm1>("expm1", y, stream, x); }

void tan_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<TanBackward>("tan_backward", dx, stream, y, dy);
}

void erf_backward(const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) {
  run<ErfBackward>("erf_backward", dx, stream, x, dy);
}

}  // namespace bs::cuda

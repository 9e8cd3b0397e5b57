#include <bs/kernels/elementary.h>
#include <bs/kernels/cuda/elementary.cuh>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

template <class T>
struct Sin {
  __device__ wide<T> operator()(wide<T> x) const { return sin_of<T>(x); }
};
template <class T>
struct Cos {
  __device__ wide<T> operator()(wide<T> x) const { return cos_of<T>(x); }
};
template <class T>
struct Tan {
  __device__ wide<T> operator()(wide<T> x) const { return ::tan(x); }
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

template <template <class> class F>
void run(const char* op, const Tensor& x, const Tensor& y, Stream stream) {
  visit_floating(op, y.dtype(),
                 [&]<class T>(Type<T>) { map_alike<T>(op, F<device_type<T>>{}, y, stream, x); });
}

}  // namespace

void sin(const Tensor& x, const Tensor& y, Stream stream) { run<Sin>("sin", x, y, stream); }

void cos(const Tensor& x, const Tensor& y, Stream stream) { run<Cos>("cos", x, y, stream); }

void tan(const Tensor& x, const Tensor& y, Stream stream) { run<Tan>("tan", x, y, stream); }

void erf(const Tensor& x, const Tensor& y, Stream stream) { run<Erf>("erf", x, y, stream); }

void log1p(const Tensor& x, const Tensor& y, Stream stream) { run<Log1p>("log1p", x, y, stream); }

void expm1(const Tensor& x, const Tensor& y, Stream stream) { run<Expm1>("expm1", x, y, stream); }

}  // namespace bs::cuda

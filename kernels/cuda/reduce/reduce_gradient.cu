#include <bs/kernels/reduce_gradient.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

struct ScaledDeviation {
  template <class W>
  __device__ W operator()(W x, W mean, W factor) const {
    return (x - mean) * factor;
  }
};
struct NormShare {
  template <class W>
  __device__ W operator()(W x, W norm, W dy) const {
    return norm == 0 ? W(0) : x / norm * dy;
  }
};
struct ExponentialShare {
  template <class W>
  __device__ W operator()(W x, W y, W dy) const {
    return x == -INFINITY ? W(0) : dy * ::exp(x - y);
  }
};

template <class F>
void run(const char* op, const F& f, const Tensor& x, const Tensor& a, const Tensor& b,
         const Tensor& dx, Stream stream) {
  visit_floating(op, dx.dtype(), [&]<class T>(Type<T>) {
    using W = std::conditional_t<std::is_same_v<T, double>, double, float>;
    map<T, T, W, W>(op, f, dx, stream, x, a, b);
  });
}

}  // namespace

void var_backward(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& dx,
                  Stream stream) {
  run("var_backward", ScaledDeviation{}, x, mean, factor, dx, stream);
}

void vector_norm_backward(const Tensor& x, const Tensor& norm, const Tensor& dy, const Tensor& dx,
                          Stream stream) {
  run("vector_norm_backward", NormShare{}, x, norm, dy, dx, stream);
}

void logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                        Stream stream) {
  run("logsumexp_backward", ExponentialShare{}, x, y, dy, dx, stream);
}

}  // namespace bs::cuda

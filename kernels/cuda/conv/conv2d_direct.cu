#include <bs/kernels/cuda/conv/conv2d_direct.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/activation.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>

namespace bs::cuda {

namespace {

using device::wide;
using device::widen;

constexpr int threads = 256;

/// An epilogue as device code sees it.
template <class T>
struct Finish {
  const T* bias;
  const T* residual;
  Strides4 strides;  ///< of the residual
  Activation activation;

  template <class A>
  __device__ wide<T> operator()(wide<T> sum, const A& at) const {
    if (bias) sum += widen(bias[at.c]);
    if (residual)
      sum += widen(
          residual[at.n * strides.n + at.c * strides.c + at.h * strides.h + at.w * strides.w]);
    switch (activation) {
      case Activation::relu:
        return device::Relu<T>{}(sum);
      case Activation::tanh:
        return device::Tanh<T>{}(sum);
      case Activation::sigmoid:
        return device::Sigmoid<T>{}(sum);
      case Activation::silu:
        return device::Silu<T>{}(sum);
      case Activation::gelu:
        return device::GeluErf<T>{}(sum);
      case Activation::gelu_tanh:
        return device::GeluTanh<T>{}(sum);
      default:
        return sum;
    }
  }
};

template <class T>
Finish<device_type<T>> finish_of(const Conv2dEpilogue& e) {
  const auto maybe = [](const Tensor& t) { return t.defined() ? pointer<T>(t) : nullptr; };
  return {maybe(e.bias), maybe(e.residual),
          e.residual.defined() ? Strides4(e.residual) : Strides4{}, e.activation};
}

/// An element of an image tensor; channels are neighbours of a warp's threads.
struct Place {
  int64_t n, c, h, w;

  __device__ Place(int64_t i, int64_t channels, int64_t rows, int64_t columns) {
    c = i % channels;
    w = i / channels % columns;
    h = i / (channels * columns) % rows;
    n = i / (channels * columns * rows);
  }
  __device__ int64_t in(const Strides4& s) const { return n * s.n + c * s.c + h * s.h + w * s.w; }
};

/// Sums of an element of y by one thread.
template <class T>
__global__ void __launch_bounds__(threads)
    forward_kernel(Conv2dProblem d, const T* x, const T* weight, Finish<T> finish, T* y) {
  const int64_t count = d.n * d.k * d.p * d.q, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Place at(i, d.k, d.p, d.q);
    const int64_t c0 = at.c / d.group_k() * d.group_c();
    wide<T> sum = 0;
    for (int64_t r = 0; r < d.r; ++r) {
      const int64_t h = at.h * d.stride.h + r * d.dilation.h - d.padding.top;
      if (h < 0 || h >= d.h) continue;
      for (int64_t s = 0; s < d.s; ++s) {
        const int64_t v = at.w * d.stride.w + s * d.dilation.w - d.padding.left;
        if (v < 0 || v >= d.w) continue;
        const T* from = x + at.n * d.x.n + c0 * d.x.c + h * d.x.h + v * d.x.w;
        const T* w = weight + at.c * d.weight.n + r * d.weight.h + s * d.weight.w;
        for (int64_t c = 0; c < d.group_c(); ++c)
          sum += widen(from[c * d.x.c]) * widen(w[c * d.weight.c]);
      }
    }
    y[at.in(d.y)] = device::narrow<T>(finish(sum, at));
  }
}

/// Sums of an element of dx by one thread.
template <class T>
__global__ void __launch_bounds__(threads)
    backward_x_kernel(Conv2dProblem d, const T* dy, const T* weight, Finish<T> finish, T* dx) {
  const int64_t count = d.n * d.c * d.h * d.w, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const Place at(i, d.c, d.h, d.w);
    const int64_t k0 = at.c / d.group_c() * d.group_k();
    wide<T> sum = 0;
    for (int64_t r = 0; r < d.r; ++r) {
      const int64_t up = at.h + d.padding.top - r * d.dilation.h;
      const int64_t p = up / d.stride.h;
      if (up < 0 || p * d.stride.h != up || p >= d.p) continue;
      for (int64_t s = 0; s < d.s; ++s) {
        const int64_t across = at.w + d.padding.left - s * d.dilation.w;
        const int64_t q = across / d.stride.w;
        if (across < 0 || q * d.stride.w != across || q >= d.q) continue;
        const T* from = dy + at.n * d.y.n + k0 * d.y.c + p * d.y.h + q * d.y.w;
        const T* w = weight + k0 * d.weight.n + at.c % d.group_c() * d.weight.c + r * d.weight.h +
                     s * d.weight.w;
        for (int64_t k = 0; k < d.group_k(); ++k)
          sum += widen(from[k * d.y.c]) * widen(w[k * d.weight.n]);
      }
    }
    dx[at.in(d.x)] = device::narrow<T>(finish(sum, at));
  }
}

/// Sums of an element of dweight by one block, its threads' shares joined in a fixed order.
template <class T>
__global__ void __launch_bounds__(threads)
    backward_w_kernel(Conv2dProblem d, const T* x, const T* dy, T* dweight) {
  const int64_t count = d.k * d.group_c() * d.r * d.s, depth = d.n * d.p * d.q;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int64_t s = i % d.s, r = i / d.s % d.r;
    const int64_t c = i / (d.s * d.r) % d.group_c(), k = i / (d.s * d.r * d.group_c());
    const int64_t channel = k / d.group_k() * d.group_c() + c;
    wide<T> sum = 0;
    for (int64_t l = threadIdx.x; l < depth; l += blockDim.x) {
      const int64_t q = l % d.q, p = l / d.q % d.p, n = l / (d.q * d.p);
      const int64_t h = p * d.stride.h + r * d.dilation.h - d.padding.top;
      const int64_t v = q * d.stride.w + s * d.dilation.w - d.padding.left;
      if (h < 0 || h >= d.h || v < 0 || v >= d.w) continue;
      sum += widen(x[n * d.x.n + channel * d.x.c + h * d.x.h + v * d.x.w]) *
             widen(dy[n * d.y.n + k * d.y.c + p * d.y.h + q * d.y.w]);
    }
    sum = device::block_reduce(sum, device::Sum{}, wide<T>(0));
    if (threadIdx.x == 0) dweight[i] = device::narrow<T>(sum);
  }
}

}  // namespace

void conv2d_direct(const Conv2dProblem& d, const Tensor& x, const Tensor& weight,
                   const Conv2dEpilogue& e, const Tensor& y, Stream stream) {
  visit_floating("conv2d", x.dtype(), [&]<class T>(Type<T>) {
    forward_kernel<<<grid_size(y.numel(), threads, y.device()), threads, 0, native(stream)>>>(
        d, pointer<T>(x), pointer<T>(weight), finish_of<T>(e), pointer<T>(y));
  });
  BS_CUDA_CHECK_LAUNCH("conv2d");
}

void conv2d_direct_x(const Conv2dProblem& d, const Tensor& dy, const Tensor& weight,
                     const Conv2dEpilogue& e, const Tensor& dx, Stream stream) {
  visit_floating("conv2d_backward_x", dy.dtype(), [&]<class T>(Type<T>) {
    backward_x_kernel<<<grid_size(dx.numel(), threads, dx.device()), threads, 0, native(stream)>>>(
        d, pointer<T>(dy), pointer<T>(weight), finish_of<T>(e), pointer<T>(dx));
  });
  BS_CUDA_CHECK_LAUNCH("conv2d_backward_x");
}

void conv2d_direct_w(const Conv2dProblem& d, const Tensor& x, const Tensor& dy,
                     const Tensor& dweight, Stream stream) {
  visit_floating("conv2d_backward_w", x.dtype(), [&]<class T>(Type<T>) {
    backward_w_kernel<<<grid_size(dweight.numel(), 1, x.device()), threads, 0, native(stream)>>>(
        d, pointer<T>(x), pointer<T>(dy), pointer<T>(dweight));
  });
  BS_CUDA_CHECK_LAUNCH("conv2d_backward_w");
}

}  // namespace bs::cuda

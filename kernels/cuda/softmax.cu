#include <bs/kernels/softmax.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/reduce.cuh>

#include <cmath>

namespace bs::cuda {

namespace {

using device::narrow;
using device::widen;

/// One block a row.
template <class T>
__global__ void softmax_kernel(const T* x, T* y, int64_t n) {
  using W = device::wide<T>;
  x += blockIdx.x * n;
  y += blockIdx.x * n;
  W top = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) top = fmax(top, widen(x[i]));
  top = device::block_reduce(top, device::Max{}, W(-INFINITY));
  W sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += exp(widen(x[i]) - top);
  sum = device::block_reduce(sum, device::Sum{}, W(0));
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    y[i] = narrow<T>(exp(widen(x[i]) - top) / sum);
}

template <class T>
__global__ void softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t n) {
  using W = device::wide<T>;
  const int64_t row = blockIdx.x * n;
  W dot = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    dot += widen(y[row + i]) * widen(dy[row + i]);
  dot = device::block_reduce(dot, device::Sum{}, W(0));
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    dx[row + i] = narrow<T>(widen(y[row + i]) * (widen(dy[row + i]) - dot));
}

unsigned threads_for(int64_t n) { return n <= 64 ? 32 : n <= 1024 ? 128 : 512; }

}  // namespace

void softmax(const Tensor& x, const Tensor& y, Stream stream) {
  const int64_t n = x.size(-1);
  const auto rows = static_cast<unsigned>(x.numel() / n);
  visit_floating("softmax", x.dtype(), [&]<class T>(Type<T>) {
    softmax_kernel<<<rows, threads_for(n), 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), n);
  });
  BS_CUDA_CHECK_LAUNCH("softmax");
}

void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx, Stream stream) {
  const int64_t n = y.size(-1);
  const auto rows = static_cast<unsigned>(y.numel() / n);
  visit_floating("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    softmax_backward_kernel<<<rows, threads_for(n), 0, native(stream)>>>(
        pointer<T>(y), pointer<T>(dy), pointer<T>(dx), n);
  });
  BS_CUDA_CHECK_LAUNCH("softmax_backward");
}

}  // namespace bs::cuda

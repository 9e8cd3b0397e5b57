#include <bs/kernels/arange.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda {

namespace {
template <class T>
__global__ void arange_kernel(T* to, int64_t n, double start, double step) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const double value = fma(static_cast<double>(i), step, start);
    if constexpr (sizeof(T) == 2) {
      to[i] = device::narrow<T>(static_cast<float>(value));  // by way of float, as on the CPU
    } else {
      to[i] = static_cast<T>(value);
    }
  }
}
}  // namespace

void arange(const Tensor& x, double start, double step, Stream stream) {
  constexpr int threads = 256;
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    arange_kernel<<<grid_size(x.numel(), threads, x.device()), threads, 0, native(stream)>>>(
        pointer<T>(x), x.numel(), start, step);
  });
  BS_CUDA_CHECK_LAUNCH("arange");
}

}  // namespace bs::cuda

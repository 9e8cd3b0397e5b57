#include <bs/kernels/accumulate.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda {

namespace {
template <class T>
__global__ void accumulate_kernel(const T* part, T* total, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    total[i] = device::narrow<T>(device::widen(total[i]) + device::widen(part[i]));
}
}  // namespace

void accumulate(const Tensor& part, const Tensor& total, Stream stream) {
  constexpr int threads = 256;
  const int64_t n = total.numel();
  visit_floating("accumulate", total.dtype(), [&]<class T>(Type<T>) {
    accumulate_kernel<<<grid_size(n, threads, total.device()), threads, 0, native(stream)>>>(
        pointer<T>(part), pointer<T>(total), n);
  });
  BS_CUDA_CHECK_LAUNCH("accumulate");
}

}  // namespace bs::cuda

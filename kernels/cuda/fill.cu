#include <bs/kernels/fill.h>
#include <bs/lib/cuda/launch.h>

#include <cstring>

namespace bs::cuda {

namespace {
template <class T>
__global__ void fill_kernel(T* to, T value, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    to[i] = value;
}
}  // namespace

void fill(const Tensor& x, double value, Stream stream) {
  constexpr int threads = 256;
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    const T converted = static_cast<T>(value);
    device_type<T> bits;
    static_assert(sizeof bits == sizeof converted);
    std::memcpy(static_cast<void*>(&bits), &converted, sizeof bits);
    fill_kernel<<<grid_size(x.numel(), threads, x.device()), threads, 0, native(stream)>>>(
        pointer<T>(x), bits, x.numel());
  });
  BS_CUDA_CHECK_LAUNCH("fill");
}

}  // namespace bs::cuda

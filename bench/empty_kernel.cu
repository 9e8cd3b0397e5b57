#include <bs/bench/empty_kernel.h>
#include <bs/lib/cuda/launch.h>

namespace bs::bench {

namespace {

template <size_t N>
struct Bytes {
  long long words[N / sizeof(long long)];
};

template <size_t N>
__global__ void empty_kernel(const __grid_constant__ Bytes<N> bytes, int* to) {
  if (to) *to = static_cast<int>(bytes.words[0]);
}

template <size_t N>
void launch(bool extended, Stream stream) {
  const Bytes<N> bytes{};
  int* to = nullptr;
  if (!extended) {
    empty_kernel<N><<<1, 32, 0, cuda::native(stream)>>>(bytes, to);
    BS_CUDA_CHECK_LAUNCH("empty_kernel");
    return;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = cuda::native(stream);
  void* parameters[] = {const_cast<Bytes<N>*>(&bytes), static_cast<void*>(&to)};
  BS_CUDA_CHECK(
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&empty_kernel<N>), parameters));
}

void launch(size_t bytes, bool extended, Stream stream) {
  if (bytes == 8) return launch<8>(extended, stream);
  launch<1024>(extended, stream);
}

}  // namespace

void launch_empty(size_t bytes, Stream stream) { launch(bytes, false, stream); }
void launch_empty_extended(size_t bytes, Stream stream) { launch(bytes, true, stream); }

}  // namespace bs::bench

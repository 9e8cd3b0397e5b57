#include <bs/kernels/arange.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/unit_pack.cuh>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// A thread N neighbours, whose numbers it converts once: what is added to them is exact.
template <class T, int N>
__global__ void __launch_bounds__(threads)
    arange_kernel(T* to, int64_t n, const __grid_constant__ Ramp ramp) {
  const int64_t first = (int64_t{blockIdx.x} * threads + threadIdx.x) * N;
  if (first >= n) return;
  const auto number = static_cast<double>(first), half = static_cast<double>(ramp.half);
  device::Pack<T, N> made;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const double i = number + k;
    const double value =
        i < half ? fma(i, ramp.step, ramp.start) : fma(i - half, ramp.step, ramp.second);
    if constexpr (sizeof(T) == 2) {
      made.at[k] = device::narrow<T>(static_cast<float>(value));  // by way of float, as on the CPU
    } else {
      made.at[k] = static_cast<T>(value);
    }
  }
  store_units<T, N>(to + first, made, static_cast<uint32_t>(n - first < N ? n - first : N));
}

}  // namespace

void arange(const Tensor& x, const Ramp& ramp, Stream stream) {
  visit_any(x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    constexpr int N = device::pack_size<D>;
    const unsigned blocks = grid_of("arange", ceil_div(x.numel(), threads * N));
    arange_kernel<D, N><<<blocks, threads, 0, native(stream)>>>(pointer<T>(x), x.numel(), ramp);
  });
  BS_CUDA_CHECK_LAUNCH("arange");
}

}  // namespace bs::cuda

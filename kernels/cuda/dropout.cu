#include <bs/kernels/distribution.h>
#include <bs/kernels/dropout.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda {

namespace {

using device::Pack;
using device::wide;

template <class T>
__device__ T keep(T x, unsigned word, unsigned limit, wide<T> scale) {
  return device::narrow<T>(word < limit ? wide<T>(0) : device::widen(x) * scale);
}

/// A thread a block of random bits, which serves four elements.
template <class T, bool aligned>
__global__ void dropout_kernel(const T* x, T* y, int64_t n, unsigned limit, wide<T> scale,
                               RandomState state) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t b = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; 4 * b < n; b += step) {
    const PhiloxBlock bits = philox(state.seed, static_cast<uint64_t>(b), state.offset);
    if (aligned && 4 * b + 4 <= n) {
      auto pack = reinterpret_cast<const Pack<T, 4>*>(x)[b];
#pragma unroll
      for (int k = 0; k < 4; ++k) pack.at[k] = keep(pack.at[k], bits.word[k], limit, scale);
      reinterpret_cast<Pack<T, 4>*>(y)[b] = pack;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (4 * b + k < n) y[4 * b + k] = keep(x[4 * b + k], bits.word[k], limit, scale);
    }
  }
}

}  // namespace

void dropout(const Tensor& x, const Tensor& y, double p, RandomState state, Stream stream) {
  constexpr int threads = 256;
  const int64_t n = x.numel();
  const auto limit = static_cast<unsigned>(threshold(p));  // p < 1
  const unsigned blocks = grid_size(ceil_div(n, 4), threads, x.device());
  visit_floating("dropout", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto scale = static_cast<wide<D>>(1 / (1 - p));
    const bool aligned = reinterpret_cast<uintptr_t>(x.data()) % (4 * sizeof(T)) == 0;
    const auto kernel = aligned ? dropout_kernel<D, true> : dropout_kernel<D, false>;
    kernel<<<blocks, threads, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), n, limit, scale,
                                                   state);
  });
  BS_CUDA_CHECK_LAUNCH("dropout");
}

}  // namespace bs::cuda

#include <bs/kernels/distribution.h>
#include <bs/kernels/dropout.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

#include <algorithm>

namespace bs::cuda {

namespace {

using device::Pack;
using device::Raw;
using device::wide;

constexpr int threads = 256;
/// Elements of a thread: 16 bytes, but at least four.
template <class T>
constexpr int vector = std::max(device::pack_size<T>, 4);

/// A thread a vector of elements, four of which a block of random bits serves. `packs` of them are
/// whole; elements behind are taken one by one.
template <class T>
__global__ void __launch_bounds__(threads)
    dropout_kernel(const T* x, T* y, int64_t packs, int64_t n, unsigned limit, wide<T> scale,
                   const __grid_constant__ PhiloxKeys<> keys, RandomState state) {
  constexpr int N = vector<T>;
  const uint64_t sequence = state.sequence();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < packs) {
    const auto raw = reinterpret_cast<const Raw<T, N>*>(x)[i];
    wide<T> values[N];
    device::widen_pack<T, N>(raw, values);
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      const PhiloxBlock bits = philox(keys, static_cast<uint64_t>(i * N + k) / 4, sequence);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        values[k + j] = bits.word[j] < limit ? wide<T>(0) : values[k + j] * scale;
    }
    reinterpret_cast<Pack<T, N>*>(y)[i] = device::narrow_pack<T, N>(values);
  }
  const int64_t at = packs * N + i;
  if (at < n) {
    const PhiloxBlock bits = philox(keys, static_cast<uint64_t>(at) / 4, sequence);
    const unsigned word = at % 4 < 2 ? (at % 4 == 0 ? bits.word[0] : bits.word[1])
                                     : (at % 4 == 2 ? bits.word[2] : bits.word[3]);
    y[at] = device::narrow<T>(word < limit ? wide<T>(0) : device::widen(x[at]) * scale);
  }
}

}  // namespace

void dropout(const Tensor& x, const Tensor& y, double p, RandomState state, Stream stream) {
  const int64_t n = x.numel();
  const auto limit = static_cast<unsigned>(threshold(p));  // p < 1
  visit_floating("dropout", x.dtype(), [&]<class T>(Type<T>) {
    using D = device_type<T>;
    const auto scale = static_cast<wide<D>>(1 / (1 - p));
    const bool aligned = reinterpret_cast<uintptr_t>(x.data()) % 16 == 0;
    const int64_t packs = aligned ? n / vector<D> : 0;
    const int64_t work = std::max(packs, n - packs * vector<D>);
    dropout_kernel<D>
        <<<static_cast<unsigned>(ceil_div(work, threads)), threads, 0, native(stream)>>>(
            pointer<T>(x), pointer<T>(y), packs, n, limit, scale, PhiloxKeys<>(state.seed), state);
  });
  BS_CUDA_CHECK_LAUNCH("dropout");
}

}  // namespace bs::cuda

#include <bs/kernels/exponential_clock.h>
#include <bs/kernels/multinomial.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/rows.cuh>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// A thread takes the elements of a block of random words. `whole`: they are one load and one
/// store.
template <class T>
__global__ void __launch_bounds__(threads) clocks_kernel(const T* weights, device::wide<T>* clocks,
                                                         int64_t n, bool whole, RandomState state) {
  using W = device::wide<T>;
  constexpr int count = sizeof(W) == 8 ? 2 : 4;
  const int64_t step = int64_t{gridDim.x} * blockDim.x, blocks = (n + count - 1) / count;
  for (int64_t b = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; b < blocks; b += step) {
    const bool all = whole && (b + 1) * count <= n;
    device::Pack<T, count> weight = {};
    if (all) {
      weight = reinterpret_cast<const device::Pack<T, count>*>(weights)[b];
    } else {
#pragma unroll
      for (int k = 0; k < count; ++k)
        if (b * count + k < n) weight.at[k] = weights[b * count + k];
    }
    const PhiloxBlock random = philox(state.seed, static_cast<uint64_t>(b), state.sequence());
    device::Pack<W, count> clock;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      const W rate = device::widen(weight.at[k]);
      if constexpr (count == 4) {
        clock.at[k] = exponential_clock_root(random.word[k], rate);
      } else {
        clock.at[k] = exponential_clock(join(random.word[2 * k], random.word[2 * k + 1]), rate);
      }
    }
    if (all) {
      reinterpret_cast<device::Pack<W, count>*>(clocks)[b] = clock;
      continue;
    }
#pragma unroll
    for (int k = 0; k < count; ++k)
      if (b * count + k < n) clocks[b * count + k] = clock.at[k];
  }
}

}  // namespace

void exponential_clocks(const Tensor& weights, const Tensor& clocks, RandomState state,
                        Stream stream) {
  const int64_t n = weights.numel();
  visit_floating("multinomial", weights.dtype(), [&]<class T>(Type<T>) {
    using W = device::wide<device_type<T>>;
    constexpr int count = sizeof(W) == 8 ? 2 : 4;
    clocks_kernel<<<grid_size(ceil_div(n, count), threads, weights.device()), threads, 0,
                    native(stream)>>>(pointer<T>(weights), pointer<W>(clocks), n,
                                      aligned16(weights, clocks), state);
  });
  BS_CUDA_CHECK_LAUNCH("multinomial");
}

}  // namespace bs::cuda

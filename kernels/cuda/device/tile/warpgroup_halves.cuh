#pragma once
// Two CTAs of a cluster that share an item of work, half of the depth each.
#include <bs/kernels/cuda/device/ptx/barrier.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// Two CTAs of a cluster have the sums of half of the depth each, of the same columns. The second
/// one takes over those of the latter half of the columns, the first one the others; each adds what
/// the other had of them to its own, which become the first `N` / 2. They come to `first` and
/// `second`, where nothing is read any more once all warps have arrived; 8 times 16 bytes of each
/// thread to each.
template <int Warps, int N>
__device__ __forceinline__ void exchange_halves(Barrier& ready, Barrier& arrived, unsigned parity,
                                                unsigned first, unsigned second, float (&sums)[N]) {
  constexpr int own = N / 2, quads = own / 4, in_first = 8;
  constexpr unsigned apart = Warps * 32 * 16;
  static_assert(quads <= 2 * in_first);
  const unsigned other = cluster_rank() ^ 1;
  if (threadIdx.x % 32 == 0) ready.arrive_at(other);
  if (threadIdx.x == 0) arrived.arrive_expecting(quads * apart);
#pragma unroll
  for (int i = 0; i < own; ++i) {
    const float low = sums[i], high = sums[own + i];
    sums[i] = other == 0 ? high : low;
    sums[own + i] = other == 0 ? low : high;
  }
  const unsigned at[2] = {first + threadIdx.x * 16, second + threadIdx.x * 16};
  const unsigned done = arrived.address(), across = address_at(other, done) - done;
  ready.wait(parity);
#pragma unroll
  for (int q = 0; q < quads; ++q) {
    const float* const from = sums + own + 4 * q;
    const float quad[4] = {from[0], from[1], from[2], from[3]};
    store_at(at[q / in_first] + q % in_first * apart + across, quad, done + across);
  }
  arrived.wait(parity);
#pragma unroll
  for (int q = 0; q < quads; ++q) {
    const float4 more = load_shared(at[q / in_first] + q % in_first * apart);
    sums[4 * q] += more.x;
    sums[4 * q + 1] += more.y;
    sums[4 * q + 2] += more.z;
    sums[4 * q + 3] += more.w;
  }
  fence_async_shared();
  __syncwarp();
}

}  // namespace bs::cuda::device

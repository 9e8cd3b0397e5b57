#pragma once
// Planes in shared memory with packs of 16 bytes that have a pixel of several: what a thread finds
// out about a pixel serves them all, and one load of 16 bytes reads it.
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/walk.cuh>

#include <cstdint>

namespace bs::cuda {

/// N packs of as many neighbours, of N planes, as N packs of as many planes, or back.
template <class T, int N = device::pack_size<T>>
__device__ inline void turn_packs(device::Raw<T, N> (&packs)[N]) {
  device::Raw<T, N> turned[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        turned[j].at[i] = __byte_perm(packs[2 * i].at[j / 2], packs[2 * i + 1].at[j / 2],
                                      j % 2 == 0 ? 0x5410 : 0x7632);
    } else {
      constexpr int words = sizeof(T) / 4;
#pragma unroll
      for (int i = 0; i < N * words; ++i)
        turned[j].at[i] = packs[i / words].at[j * words + i % words];
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) packs[j] = turned[j];
}

/// Groups of N planes of a multiple of N pixels each. Behind every N pixels one pack is left out,
/// so that threads which turn neighbours use different banks.
template <class T>
struct TurnedPlanes {
  static constexpr int N = device::pack_size<T>;
  using Element = T;
  using Raw = device::Raw<T, N>;

  Raw* data;

  /// Packs in shared memory of a group whose planes have so many pixels.
  static __host__ __device__ uint32_t packs(uint32_t pixels) { return pixels / N * (N + 1); }

  /// A pixel of the first group's planes.
  __device__ Raw raw(uint32_t pixel, uint32_t = 0) const { return data[pixel + pixel / N]; }
  __device__ void store(uint32_t pixel, const device::wide<T> (&values)[N]) const {
    const auto pack = device::narrow_pack<T, N>(values);
    data[pixel + pixel / N] = reinterpret_cast<const Raw&>(pack);
  }
  __device__ TurnedPlanes group(uint32_t number, uint32_t pixels) const {
    return {data + number * packs(pixels)};
  }

  /// Takes planes that lie one behind the other in memory, `runs` of N pixels each; or gives them.
  __device__ void load(const T* planes, const Divisor& runs, uint32_t groups) const {
    const auto* const from = reinterpret_cast<const Raw*>(planes);
    for (uint32_t i = threadIdx.x; i < groups * runs.number; i += blockDim.x) {
      const uint32_t first = first_run(i, runs);
      Raw packs[N];
#pragma unroll
      for (int k = 0; k < N; ++k) packs[k] = from[first + k * runs.number];
      turn_packs<T>(packs);
#pragma unroll
      for (int k = 0; k < N; ++k) data[i * (N + 1) + k] = packs[k];
    }
  }
  __device__ void unload(T* planes, const Divisor& runs, uint32_t groups) const {
    auto* const to = reinterpret_cast<Raw*>(planes);
    for (uint32_t i = threadIdx.x; i < groups * runs.number; i += blockDim.x) {
      const uint32_t first = first_run(i, runs);
      Raw packs[N];
#pragma unroll
      for (int k = 0; k < N; ++k) packs[k] = data[i * (N + 1) + k];
      turn_packs<T>(packs);
#pragma unroll
      for (int k = 0; k < N; ++k) to[first + k * runs.number] = packs[k];
    }
  }

 private:
  /// Where run i of the groups lies in the first plane of its group.
  static __device__ uint32_t first_run(uint32_t i, const Divisor& runs) {
    const uint32_t group = runs.divide(i);
    return group * (N - 1) * runs.number + i;
  }
};

}  // namespace bs::cuda

#pragma once
// Items of work that several CTAs share, each of them a part of the depth: the last part of an item
// waits for the sums of the others and adds them to its own, in the order of the list of pieces.
// That cannot lock up: parts are taken in that order, so that a part waits only for such as a CTA
// has already taken, and all of those but the last wait for nothing.
#include <bs/kernels/cuda/device/barrier.cuh>
#include <bs/kernels/cuda/device/warpgroup.cuh>
#include <bs/kernels/cuda/device/warpgroup_problem.cuh>

namespace bs::cuda::device {

__device__ inline int load_acquire(const int* from) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ inline WorkPiece whole_item(int item) {
  return {.item = item, .begin = 0, .end = -1, .part = 0, .parts = 1, .slot = 0};
}
/// Which steps of which item a piece of work is; without a list, all `steps` of item `work`.
__device__ inline WorkPiece piece_of_work(const WorkSplit& split, int work) {
  if (split.pieces == nullptr) return whole_item(work);
  return split.pieces[work];
}

/// Called by a warpgroup that has its sums of a piece of work: true where they now are those of the
/// item, false where another will have them. `started`: whether there was anything to sum;
/// `thread`: of the warpgroup.
template <int Groups, int N>
__device__ inline bool finish_parts(const WorkSplit& split, int work, int group, float (&sums)[N],
                                    bool& started,
                                    int thread = static_cast<int>(threadIdx.x) % warpgroup_size) {
  if (split.pieces == nullptr) return true;
  const WorkPiece piece = split.pieces[work];
  if (piece.parts == 1) return true;
  static_assert(N % 4 == 0);
  constexpr int quads = N / 4;  // of sums, those of all threads side by side
  const long long first = piece.slot * Groups + group;
  float4* at =
      reinterpret_cast<float4*>(split.partials) + first * (quads * warpgroup_size) + thread;
  int* const arrived = split.arrived + first;
  constexpr int next = Groups * quads * warpgroup_size;
  if (piece.part + 1 < piece.parts) {
    at += static_cast<long long>(piece.part) * next;
#pragma unroll
    for (int q = 0; q < quads; ++q)
      at[q * warpgroup_size] =
          started ? make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3])
                  : make_float4(0, 0, 0, 0);
    named_barrier(1 + group, warpgroup_size);
    if (thread == 0) {
      __threadfence();
      atomicAdd(arrived, 1);
    }
    return false;
  }
  if (thread == 0) {
    while (load_acquire(arrived) != piece.parts - 1) {
    }
    *arrived = 0;
  }
  named_barrier(1 + group, warpgroup_size);
  if (!started) {
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = 0;
    started = true;
  }
#pragma unroll 1
  for (int part = 0; part + 1 < piece.parts; ++part, at += next) {
#pragma unroll
    for (int q = 0; q < quads; ++q) {
      const float4 more = __ldcg(at + q * warpgroup_size);
      sums[4 * q] += more.x;
      sums[4 * q + 1] += more.y;
      sums[4 * q + 2] += more.z;
      sums[4 * q + 3] += more.w;
    }
  }
  return true;
}

__device__ inline float4 load_shared(unsigned from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

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

#pragma once
// Items of work that several CTAs share, each of them a part of the depth: the last part of an item
// waits for the sums of the others and adds them to its own, in the order of the list of pieces.
// That cannot lock up: parts are taken in that order, so that a part waits only for such as a CTA
// has already taken, and all of those but the last wait for nothing.
#include <bs/kernels/cuda/device/warpgroup.cuh>
#include <bs/kernels/cuda/device/warpgroup_problem.cuh>

namespace bs::cuda::device {

__device__ inline int load_acquire(const int* from) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// Which steps of which item a piece of work is; without a list, all `steps` of item `work`.
__device__ inline WorkPiece piece_of_work(const WorkSplit& split, int work) {
  if (split.pieces == nullptr)
    return {.item = work, .begin = 0, .end = -1, .part = 0, .parts = 1, .slot = 0};
  return split.pieces[work];
}

/// Called by a warpgroup that has its sums of a piece of work: true where they now are those of the
/// item, false where another will have them. `started`: whether there was anything to sum.
template <int Groups, int N>
__device__ inline bool finish_parts(const WorkSplit& split, int work, int group, float (&sums)[N],
                                    bool& started) {
  if (split.pieces == nullptr) return true;
  const WorkPiece piece = split.pieces[work];
  if (piece.parts == 1) return true;
  static_assert(N % 4 == 0);
  constexpr int quads = N / 4;  // of sums, those of all threads side by side
  const int thread = static_cast<int>(threadIdx.x) % warpgroup_size;
  const long long first = static_cast<long long>(piece.slot) * Groups + group;
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

}  // namespace bs::cuda::device

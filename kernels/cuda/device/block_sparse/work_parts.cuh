#pragma once
// Items of work that several CTAs share, each of them a part of the depth: the last part of an item
// waits for the sums of the others and adds them to its own, in the order of the list of pieces.
// That cannot lock up: parts are taken in that order, so that a part waits only for such as a CTA
// has already taken, and all of those but the last wait for nothing.
#include <bs/kernels/cuda/device/block_sparse/work_split.cuh>
#include <bs/kernels/cuda/device/ptx/acquire.cuh>
#include <bs/kernels/cuda/device/ptx/barrier.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

__device__ inline WorkPiece whole_item(int item) {
  return {.item = item, .begin = 0, .end = -1, .part = 0, .parts = 1, .slot = 0};
}
/// Which steps of which item a piece of work is; without a list, all `steps` of item `work`.
__device__ inline WorkPiece piece_of_work(const WorkSplit& split, int work) {
  if (split.pieces == nullptr) return whole_item(work);
  return split.pieces[work];
}

/// 16 bytes of sums as one number: through arrays, ptxas would spill the sums beside an epilogue.
template <class Sum>
struct SumPack;
template <>
struct SumPack<float> {
  using Type = float4;
  __device__ static Type of(const float* x) { return make_float4(x[0], x[1], x[2], x[3]); }
  __device__ static void add(float* x, Type more) {
    x[0] += more.x;
    x[1] += more.y;
    x[2] += more.z;
    x[3] += more.w;
  }
};
template <>
struct SumPack<double> {
  using Type = double2;
  __device__ static Type of(const double* x) { return make_double2(x[0], x[1]); }
  __device__ static void add(double* x, Type more) {
    x[0] += more.x;
    x[1] += more.y;
  }
};

/// Called by a warpgroup, of as many `Groups` as have a piece of work together, that has its sums
/// of the piece: true where they now are those of the item, false where another will have them.
/// `started`: whether there was anything to sum; `thread`: of the group.
template <int Groups, class Sum, int N>
__device__ inline bool finish_parts(const WorkSplit& split, const WorkPiece& piece, int group,
                                    Sum (&sums)[N], bool& started,
                                    int thread = static_cast<int>(threadIdx.x) % warpgroup_size) {
  if (piece.parts == 1) return true;
  constexpr int width = 16 / static_cast<int>(sizeof(Sum));
  constexpr int packs = N / width;  // of sums, those of all threads side by side
  constexpr int of_group = packs * warpgroup_size, next = Groups * of_group;
  static_assert(packs * width == N);
  using Pack = SumPack<Sum>;
  using Type = typename Pack::Type;
  const long long first = piece.slot * Groups + group;
  Type* at = static_cast<Type*>(split.partials) + first * of_group + thread;
  int* const arrived = split.arrived + first;
  if (piece.part + 1 < piece.parts) {
    at += static_cast<long long>(piece.part) * next;
#pragma unroll
    for (int q = 0; q < packs; ++q)
      at[q * warpgroup_size] = started ? Pack::of(sums + width * q) : Type{};
    named_barrier(1 + group, warpgroup_size);
    if (thread == 0) {
      __threadfence();
      atomicAdd(arrived, 1);
    }
    return false;
  }
  if (thread == 0) {
    for (Patience patience; load_acquire(arrived) != piece.parts - 1;)
      if (!patience.lasts()) break;
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
    for (int q = 0; q < packs; ++q) Pack::add(sums + width * q, __ldcg(at + q * warpgroup_size));
  }
  return true;
}

}  // namespace bs::cuda::device

#pragma once
// What keeps absent blocks out of dsd. Zeros stand where a row of a tile of small blocks lacks a
// column that another row has, and zero times an infinity or NaN of B is NaN. So a sum that is NaN
// may be wrong, and no other can be. A warp that finds one computes its 16 rows anew by mma.sync,
// from the blocks there are alone: slowly, where B is finite never.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_dsd_items.cuh>
#include <bs/kernels/cuda/device/ptx/mma.cuh>

namespace bs::cuda::device {

/// Whether any of a warp's sums is infinite or NaN.
template <int N>
__device__ __forceinline__ bool any_not_finite(const float (&sums)[N]) {
  float zero = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) zero = __fmaf_rn(sums[i], 0, zero);
  return __any_sync(~0u, zero != 0);
}

/// Numbers of `T` as the tensor cores take them, two a register.
template <class T>
__device__ inline unsigned two_at(const T* x, long long step) {
  const auto* const bits = reinterpret_cast<const unsigned short*>(x);
  return __ldg(bits) | static_cast<unsigned>(__ldg(bits + step)) << 16;
}

/// Adds the products of 16 rows of a block by 8 columns of B, a depth of 8. Where everything lies
/// is found anew each time: the sums of the tile have nearly all registers.
template <int Block, bool Transposed, class T>
__device__ __forceinline__ void add_exactly(const WarpgroupDsdParams& p, const BatchIndex& index,
                                            int number, int row, int depth, int column,
                                            float (&own)[4]) {
  const int lane = static_cast<int>(fresh_thread()) % 32;
  constexpr int down = 8 * (Transposed ? 1 : Block), next = Transposed ? Block : 1;
  const T* const value =
      static_cast<const T*>(p.blocks) +
      (static_cast<long long>(index.dot(p.value_steps)) + number) * (Block * Block) +
      (row + lane / 4) * (Transposed ? 1 : Block) + (depth % Block + lane % 4 * 2) * next;
  const unsigned of_a[2] = {two_at(value, next), two_at(value + down, next)};
  unsigned of_b = 0;
  if (column + lane / 4 < p.n)
    of_b = two_at(static_cast<const T*>(p.b_at) + index.at[0] * p.b_axes[0] +
                      index.at[1] * p.b_axes[1] + index.at[2] * p.b_axes[2] +
                      (depth + lane % 4 * 2) * p.b_row + (column + lane / 4) * p.b_col,
                  p.b_row);
  mma_1688(own, of_a, of_b, T{});
}

/// The sums of one item for 16 rows, from row `within` of block row `strip_row` of its strip on,
/// and the 8 columns from `column` on.
template <int Block, int StripRows, bool Transposed, class T>
__device__ __forceinline__ void sum_exactly(const WarpgroupDsdParams& p, int item, int column,
                                            int strip_row, int within, float (&own)[4]) {
  const DsdPlace place(p, item);
  const BatchIndex batch(p.batch, place.batch);
  const int local = local_dsd_strip(p, place, batch);
#pragma unroll 1
  for (int product = 0; product < count(p.sum); ++product) {
    const BatchIndex index = batch + BatchIndex(p.sum, product);
    const int strip = index.dot(p.head_steps) * p.list.strips + local;
    const int end = p.list.offsets[strip + 1];
#pragma unroll 1
    for (int entry = p.list.offsets[strip]; entry < end; ++entry) {
      const int number = p.list.blocks[static_cast<long long>(entry) * StripRows + strip_row];
      if (number < 0) continue;
#pragma unroll 1
      for (int depth = p.list.cols[entry] * Block, k = 0; k < Block; k += 8, depth += 8)
        add_exactly<Block, Transposed, T>(p, index, number, within, depth, column, own);
    }
  }
}

/// Puts right those sums of a warp of kernel `K` that absent blocks may have spoilt.
template <class K, class Item, int N>
__device__ __forceinline__ void keep_absent_out(const WarpgroupDsdParams& p, const Item& item,
                                                int group, float (&sums)[N]) {
  static_assert(N / 4 <= 32);
  if (!any_not_finite(sums)) return;
  unsigned wrong = 0;  // groups of 8 columns, a bit each
#pragma unroll
  for (int j = 0; j < N / 4; ++j) {
    float zero = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) zero = __fmaf_rn(sums[4 * j + i], 0, zero);
    wrong |= (zero != 0 ? 1U : 0U) << j;
  }
  wrong = __reduce_or_sync(~0U, wrong);
#pragma unroll 1
  for (; wrong != 0; wrong &= wrong - 1) {
    const int at = __ffs(static_cast<int>(wrong)) - 1;
    const int row = static_cast<int>(threadIdx.x) % warpgroup_size / 32 * 16;  // of the tile
    float own[4] = {0, 0, 0, 0};
    sum_exactly<K::block, K::rows, K::transposed, typename K::T>(
        p, piece_of_work(p.split, item.work).item, item.column + at * 8,
        group * K::boxes + row / K::slice, row % K::slice, own);
#pragma unroll
    for (int j = 0; j < N / 4; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (j == at) sums[4 * j + i] = own[i];
  }
}

}  // namespace bs::cuda::device

#pragma once
// Who works on what in a CTA of dsd. One warp takes items, and looks up what the others need to
// know of each while these still copy the item before: the way from the counter of items to the
// first block of a strip is four reads of global memory, each of which waits for the one before.
#include <bs/kernels/cuda/device/block_sparse/block_sparse_strips.cuh>
#include <bs/kernels/cuda/device/block_sparse/work_parts.cuh>

namespace bs::cuda::device {

/// Where an item is: a strip of the list's order, and a tile of columns of one C of the batch.
struct DsdPlace {
  int strip, tile, batch;
  __device__ DsdPlace(const WarpgroupDsdParams& p, int item) {
    int column = 0, columns = p.columns;
    strip = 0;
    if (item >= p.order.first * columns) {
      strip = p.order.first;
      item -= strip * columns;
      const int of_group = (p.list.strips - strip) * p.order.group;
      const int group = min(item / of_group, p.order.groups - 1);
      item -= group * of_group;
      column = group * p.order.group;
      columns = group + 1 < p.order.groups ? p.order.group : columns - column;
    }
    strip += item / columns;
    column += item % columns;
    tile = column % p.tiles;
    batch = column / p.tiles;
  }
};

/// What the warpgroups that multiply know of an item.
template <int Listed>
struct DsdItem {
  int work;   ///< its number, or that of the piece of it
  int steps;  ///< stages to come; -1: there are no more items
  int column, batch;
  int rows[Listed];  ///< where its block rows begin; or the first of them, if all follow it
};

/// What the warps that copy know: those steps of an item that one of the products summed into it
/// has. Each has a stage at least.
struct DsdStretch {
  int begin, size;  ///< union columns of the strip; size -1: there is nothing more
  int from, end;    ///< steps
  int first_value;  ///< block of the operand
  int column;       ///< of C
  int b_at[3];
};

/// Both, in rings. None of their places is written again before its last reader is done, and nobody
/// asks: a reader that is still at item j has given back the stages of j at most, so that copies go
/// on up to the `stages` stretches behind it, and the next two are known.
template <int Stages, int Listed>
struct DsdItems {
  static constexpr int ring = 8;
  static_assert(Stages + 3 <= ring);
  Barrier known[ring];  ///< a stretch
  Barrier asked;        ///< for the next one
  DsdItem<Listed> items[ring];
  DsdStretch stretches[ring];

  __device__ void init() {
    for (int i = 0; i < ring; ++i) known[i].init(1);
    asked.init(1);
  }

  /// Stretch `turn`, for a warp that copies.
  __device__ const DsdStretch& wait(int turn) {
    known[turn % ring].wait(turn / ring % 2);
    return stretches[turn % ring];
  }
};

/// The strip of an item in its head. Strips are taken in the order of the first head whose product
/// goes into this C.
__device__ inline int local_dsd_strip(const WarpgroupDsdParams& p, const DsdPlace& place,
                                      const BatchIndex& batch) {
  return p.list.order[batch.dot(p.head_steps) * p.list.strips + place.strip] % p.list.strips;
}

/// Steps of an item of `products`: each column takes `Halves`, and a step has `Slices` of these.
template <int Halves, int Slices>
__device__ inline int count_dsd_steps(const WarpgroupDsdParams& p, const BatchIndex& batch,
                                      int local, int products) {
  int total = 0;
#pragma unroll 1
  for (int product = 0; product < products; ++product) {
    const int head = (batch + BatchIndex(p.sum, product)).dot(p.head_steps);
    const int* offsets = p.list.offsets + head * p.list.strips + local;
    total += ((offsets[1] - offsets[0]) * Halves + Slices - 1) / Slices;
  }
  return total;
}

/// Where the `Rows` block rows of a strip lie. Whoever makes it asks for them, but waits for none.
template <bool Gathered, int Rows, int Block>
struct DsdRows {
  int at[Gathered ? Rows : 1];

  /// Of strip `local` of this C's head.
  __device__ DsdRows(const WarpgroupDsdParams& p, const BatchIndex& batch, int local) {
    if constexpr (Gathered) {
      const int strip = batch.dot(p.head_steps) * p.list.strips + local;
      const int* const listed = p.list.rows + static_cast<long long>(strip) * Rows;
#pragma unroll
      for (int i = 0; i < Rows; ++i) at[i] = __ldg(listed + i);
    } else {
      at[0] = local * Rows;
    }
  }

  __device__ void tell(DsdItem<Gathered ? Rows : 1>& item) const {
#pragma unroll
    for (int i = 0; i < (Gathered ? Rows : 1); ++i) item.rows[i] = at[i] * Block;
  }
};

/// The next item, for the warp that asks. Where none is cut, the first is that of the CTA's own
/// number, which saves the wait for the counter; but parts wait for each other, so that a CTA that
/// does not run yet must not have any.
__device__ inline int take_item(const WarpgroupDsdParams& p, bool first) {
  const bool cut = p.split.pieces != nullptr;
  if (first && !cut) return static_cast<int>(blockIdx.x);
  int taken = 0;
  if (threadIdx.x % 32 == 0) taken = atomicAdd(p.next, 1);
  return __shfl_sync(~0u, taken, 0) + (cut ? 0 : static_cast<int>(gridDim.x));
}

}  // namespace bs::cuda::device

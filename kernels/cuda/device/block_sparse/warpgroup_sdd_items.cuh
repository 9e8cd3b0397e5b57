#pragma once
// Who works on what in the CTAs of sdd: how a CTA takes items ahead of those that it copies, and
// what its warpgroups that multiply are told of them.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>
#include <bs/kernels/cuda/device/block_sparse/work_parts.cuh>

namespace bs::cuda::device {

/// One of the `Ranges` of an item of one S of the batch. Strips are of so many block rows, one
/// after the other or gathered.
template <int Ranges, int StripRows, bool Gathered>
struct SddPlace : SddRange {
  int batch;
  __device__ SddPlace(const WarpgroupSddParams& p, int item, int range = 0)
      : SddRange(p.work[item % p.works * Ranges + range]), batch(item / p.works) {}

  __device__ int head(const WarpgroupSddParams& p) const {
    return (Gathered ? listed_row(p, 0) : strip) / p.list.strips;
  }
  /// Block row `i` of the strip, in its head.
  __device__ int row(const WarpgroupSddParams& p, int i) const {
    return Gathered ? listed_row(p, i) % p.list.strips : strip % p.list.strips * StripRows + i;
  }
  /// Of the range's block columns, number `j`.
  __device__ int column(const WarpgroupSddParams& p, int j) const {
    return __ldg(p.list.cols + first + j);
  }
  /// The block of row `i` of the strip there, or -1.
  __device__ int block(const WarpgroupSddParams& p, int j, int i) const {
    return __ldg(p.list.blocks + static_cast<long long>(first + j) * StripRows + i);
  }

 private:
  __device__ int listed_row(const WarpgroupSddParams& p, int i) const {
    return __ldg(p.list.rows + static_cast<long long>(strip) * StripRows + i);
  }
};

/// What the warpgroups that multiply know of each stage.
template <int Stages>
struct SddNotes {
  int item[Stages];   ///< or piece of one; -1 at the end
  int steps[Stages];  ///< of it
};

/// Items for a CTA, two at most ahead of the slowest of the `Warps` that copy.
template <int Warps>
struct SddFeed {
  using Turn = RingPlace<2>;
  Barrier given[2], read[2];  ///< of `taken`
  int taken[2];
  int begun;  ///< the first item, where items are cut

  __device__ void init() {
    for (int i = 0; i < 2; ++i) {
      given[i].init(1);
      read[i].init(Warps);
    }
  }

  /// Has the first item taken, by the warps that copy, before they synchronise with the others.
  /// Where none is cut it is that of the CTA's own number, which saves the wait for the counter;
  /// but parts wait for each other, so that a CTA that does not run yet must not have any.
  __device__ void begin(const WarpgroupSddParams& p) {
    if (is_cut(p) && threadIdx.x % warpgroup_size == 0) begun = atomicAdd(p.next, 1);
  }
  __device__ int first(const WarpgroupSddParams& p) const {
    return is_cut(p) ? begun : static_cast<int>(blockIdx.x);
  }

  /// Has the next item taken: all warps ask, then take.
  __device__ void ask(const WarpgroupSddParams& p, const Turn& turn) {
    if (threadIdx.x % warpgroup_size != 0) return;
    read[turn.stage].wait(turn.parity ^ 1);
    taken[turn.stage] = (is_cut(p) ? 0 : static_cast<int>(gridDim.x)) + atomicAdd(p.next, 1);
    given[turn.stage].arrive();
  }
  __device__ int take(Turn& turn) {
    const bool first_lane = threadIdx.x % 32 == 0;  // it alone reads what it then gives back
    given[turn.stage].wait(turn.parity);
    const int item = __shfl_sync(~0u, first_lane ? taken[turn.stage] : 0, 0);
    if (first_lane) read[turn.stage].arrive();
    turn.advance();
    return item;
  }

 private:
  __device__ static bool is_cut(const WarpgroupSddParams& p) { return p.split.pieces != nullptr; }
};

}  // namespace bs::cuda::device

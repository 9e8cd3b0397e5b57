#pragma once
// Who works on what in the CTAs of sdd: how a cluster takes items ahead of those that it copies,
// what each of its CTAs does of one, and what its warpgroups that multiply are told of it.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>
#include <bs/kernels/cuda/device/block_sparse/work_parts.cuh>

namespace bs::cuda::device {

template <int Ctas>
__device__ inline int sdd_rank() {
  return Ctas == 1 ? 0 : static_cast<int>(cluster_rank());
}

/// What this CTA does of an item of one S of the batch. Strips are of so many block rows, one after
/// the other or gathered.
template <int Ctas, int StripRows, bool Gathered>
struct SddPlace : SddShare {
  int batch;
  __device__ SddPlace(const WarpgroupSddParams& p, int item)
      : SddPlace(p, item, sdd_rank<Ctas>()) {}
  /// Where not CTAs but others have a share of an item each.
  __device__ SddPlace(const WarpgroupSddParams& p, int item, int share)
      : SddShare(p.work[item % p.works * Ctas + share]), batch(item / p.works) {}

  __device__ int head(const WarpgroupSddParams& p) const {
    return (Gathered ? listed_row(p, 0) : strip) / p.list.strips;
  }
  /// Block row `i` of the strip, in its head.
  __device__ int row(const WarpgroupSddParams& p, int i) const {
    return Gathered ? listed_row(p, i) % p.list.strips : strip % p.list.strips * StripRows + i;
  }
  /// Of this CTA's block columns, number `j`.
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

/// Of steps [begin, end), those of this CTA where both of a cluster have half of an item's depth.
/// Both go as many, so that their rings keep pace; the last one may lie beyond the depth.
__device__ inline void halve(int& begin, int& end) {
  end = (end + 1) / 2;
  if (cluster_rank() != 0) {
    begin = end;
    end += end;
  }
}

/// What the warpgroups that multiply know of each stage.
template <int Stages>
struct SddNotes {
  int item[Stages];     ///< or piece of one; -1 at the end
  int steps[Stages];    ///< of it
  int half[Stages];     ///< 2 if of half of the depth, and the exchange's parity
  int columns[Stages];  ///< of it
};

/// Items for a cluster, whose first CTA takes them and tells both, two at most ahead of the slowest
/// of the `Warps` that copy.
template <int Ctas, int Warps>
struct SddFeed {
  using Turn = RingPlace<2>;
  Barrier given[2], read[2];  ///< of `taken`
  int taken[2];

  __device__ void init() {
    for (int i = 0; i < 2; ++i) {
      given[i].init(1);
      read[i].init(Warps * Ctas);
    }
  }

  /// Each cluster has its first item by its number.
  __device__ static int first() { return static_cast<int>(blockIdx.x) / Ctas; }

  /// Has the next item taken: all warps of each CTA ask, then take.
  __device__ void ask(const WarpgroupSddParams& p, const Turn& turn) {
    if (threadIdx.x % warpgroup_size != 0) return;
    Barrier& done = given[turn.stage];
    if constexpr (Ctas > 1) done.arrive_expecting(sizeof(int));
    if (Ctas > 1 && cluster_rank() != 0) return;
    read[turn.stage].wait(turn.parity ^ 1);
    const int item = static_cast<int>(gridDim.x) / Ctas + atomicAdd(p.next, 1);
    if constexpr (Ctas == 1) {
      taken[turn.stage] = item;
      done.arrive();
    } else {
      for (int cta = 0; cta < Ctas; ++cta) store_at(cta, taken[turn.stage], item, done);
    }
  }
  __device__ int take(Turn& turn) {
    const bool first_lane = threadIdx.x % 32 == 0;  // it alone reads what it then gives back
    given[turn.stage].wait(turn.parity);
    const int item = __shfl_sync(~0u, first_lane ? taken[turn.stage] : 0, 0);
    if (first_lane) {
      if constexpr (Ctas == 1) {
        read[turn.stage].arrive();
      } else {
        read[turn.stage].arrive_at(0);
      }
    }
    turn.advance();
    return item;
  }
};

}  // namespace bs::cuda::device

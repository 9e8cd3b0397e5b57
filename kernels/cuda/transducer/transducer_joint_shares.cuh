#pragma once
// How the backward of a transducer's joint is divided. A pair of an utterance and a slice of
// columns (and of labels, where there are many) is one piece of work, its frames in fours the steps
// of it; every block has an equal share of all steps within the lengths, whichever pairs they
// belong to. Where blocks can be divided by the slices, those with the same share of different
// slices run side by side, so that rows are read whole.
#include <bs/kernels/cuda/transducer/transducer_joint.cuh>

namespace bs::cuda::joint {

inline constexpr int step_start = 4;   ///< what a step costs besides its rows, in rows
inline constexpr int least_steps = 4;  ///< of a share
inline constexpr unsigned all_lanes = 0xffffffffU;

/// How columns and labels are divided. Of the pairs of an utterance `beside` are done side by side,
/// all of them or one.
struct Cut {
  int slices, labels, label_parts, beside;

  __device__ int turns() const { return slices * label_parts / beside; }
};

/// What a piece of work costs, in rows.
struct Cost {
  int steps, step;
  __device__ int64_t all() const { return int64_t{steps} * step; }
};
__device__ inline Cost cost_of(const Utterance& one, const Cut& cut) {
  return {(one.frames + frames_at_once - 1) / frames_at_once,
          min(one.columns(), cut.labels) + step_start};
}

/// All work that is not side by side in a row, and the shares it is divided into. A whole warp
/// calls its functions.
struct Shares {
  int64_t total = 0;
  int count = 1;

  __device__ Shares(const Utterances& utterances, const Cut& cut, int blocks) {
    int step = 1;
    for (int first = 0; first < utterances.batch; first += 32) {
      const int b = first + static_cast<int>(threadIdx.x % 32);
      if (b >= utterances.batch) continue;
      const Cost cost = cost_of(utterances[b], cut);
      total += cost.all() * cut.turns();
      step = max(step, cost.step);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(all_lanes, total, lanes);
    step = __reduce_max_sync(all_lanes, step);
    const int64_t most = max(total / (int64_t{least_steps} * step), int64_t{1});
    count = static_cast<int>(min(most, int64_t{blocks}));
  }
  __device__ int64_t begin(int share) const { return total * share / count; }
  /// The share that has a row: the last that begins there or before.
  __device__ int with(int64_t row) const {
    return static_cast<int>(((row + 1) * count - 1) / total);
  }
};

/// The cost of all utterances before b.
__device__ inline int64_t cost_before(const Utterances& utterances, const Cut& cut, int b) {
  int64_t sum = 0;
  for (int i = static_cast<int>(threadIdx.x % 32); i < b; i += 32)
    sum += cost_of(utterances[i], cut).all() * cut.turns();
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(all_lanes, sum, lanes);
  return sum;
}

/// Steps [first, last) of a pair.
struct Segment {
  int b, slice, label_part, first, last;
  bool whole;
};

/// Goes through a share's segments. A whole warp calls its functions.
struct Walk {
  const Utterances& utterances;
  const Cut& cut;
  int beside;  ///< which of the pairs side by side
  int64_t at, end;
  int first = 0;       ///< of 32 utterances, the lane's own among them
  int64_t before = 0;  ///< cost of all utterances before them

  __device__ bool next(Segment& segment) {
    if (at >= end) return false;
    const int lane = static_cast<int>(threadIdx.x % 32);
    int64_t begin = 0;  // of the utterance
    for (;; first += 32) {
      const int b = first + lane;
      const int64_t own =
          b < utterances.batch ? cost_of(utterances[b], cut).all() * cut.turns() : 0;
      int64_t sum = own;
      for (int lanes = 1; lanes < 32; lanes *= 2) {
        const int64_t less = __shfl_up_sync(all_lanes, sum, lanes);
        if (lane >= lanes) sum += less;
      }
      const unsigned further = __ballot_sync(all_lanes, at < before + sum);
      if (further != 0) {
        segment.b = first + __ffs(further) - 1;
        begin = before + __shfl_sync(all_lanes, sum - own, __ffs(further) - 1);
        break;
      }
      before += __shfl_sync(all_lanes, sum, 31);
    }
    const Cost cost = cost_of(utterances[segment.b], cut);
    const int turn = static_cast<int>((at - begin) / cost.all());
    begin += turn * cost.all();
    const int pair = turn * cut.beside + beside;
    segment.slice = pair % cut.slices;
    segment.label_part = pair / cut.slices;
    segment.first = static_cast<int>((at - begin) / cost.step);
    segment.last =
        end >= begin + cost.all() ? cost.steps : static_cast<int>((end - begin) / cost.step);
    segment.whole = segment.first == 0 && segment.last == cost.steps;
    at = begin + cost.all();
    return true;
  }
};

}  // namespace bs::cuda::joint

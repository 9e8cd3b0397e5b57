#pragma once
// How the kernels of attention's gradients on wgmma hand out their items.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>

namespace bs::cuda::device {

/// The next item of a launch, the same for all lanes.
__device__ inline int take_attention_item(const WarpgroupAttention& p) {
  int item = 0;
  if (threadIdx.x % 32 == 0) item = atomicAdd(p.next, 1);
  return __shfl_sync(~0u, item, 0);
}
/// What a word of shared memory holds, for all lanes: read by lane 0, which then is free to give it
/// back by itself.
template <class Word>
__device__ Word read_for_all(const Word& word) {
  Word value = 0;
  if (threadIdx.x % 32 == 0) value = word;
  return __shfl_sync(~0u, value, 0);
}
/// Called once by each of `workers` that found no more: the last one puts the counters back.
__device__ inline void leave_attention(const WarpgroupAttention& p, int workers) {
  if (atomicAdd(p.next + 1, 1) + 1 == workers) p.next[0] = p.next[1] = 0;
}

}  // namespace bs::cuda::device

#pragma once
// How the kernels of attention's gradients on wgmma hand out their items.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// The next item of a launch, the same for all lanes.
__device__ inline int take_attention_item(const WarpgroupAttention& p) {
  int item = 0;
  if (threadIdx.x % 32 == 0) item = atomicAdd(p.next, 1);
  return __shfl_sync(~0u, item, 0);
}
/// What warpgroups need to know of an item. The warp that copies for them looks it up ahead.
struct AttentionTarget {
  int item;    ///< -1: there are no more
  int first;   ///< key, or query
  int number;  ///< of the head, over the batch
};
/// A head of a batch entry.
struct AttentionHeadAt {
  int batch, head;

  __device__ AttentionHeadAt(int number, int heads)
      : batch(static_cast<int>(static_cast<unsigned>(number) / static_cast<unsigned>(heads))),
        head(number - batch * heads) {}
};
/// What a word of shared memory holds, for all lanes: read by lane 0, which then is free to give it
/// back by itself.
template <class Word>
__device__ Word read_for_all(const Word& word) {
  Word value = 0;
  if (threadIdx.x % 32 == 0) value = word;
  return __shfl_sync(~0u, value, 0);
}
__device__ inline AttentionTarget read_for_all(const AttentionTarget& target) {
  return {read_for_all(target.item), read_for_all(target.first), read_for_all(target.number)};
}
/// The first entry of a list, ascending, whose block does not end at `first` or before.
template <int block>
__device__ int skip_hidden(const StripList& list, int begin, int end, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int hidden = 32;
  while (hidden == 32 && begin < end) {
    const bool before =
        begin + lane < end && (__ldg(list.cols + begin + lane) + 1) * block <= first;
    hidden = __popc(__ballot_sync(~0u, before));
    begin += hidden;
  }
  return begin;
}
/// The end of those whose block does not begin at `past` or behind it.
template <int block>
__device__ int cut_hidden(const StripList& list, int begin, int end, int past) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int hidden = 32;
  while (hidden == 32 && begin < end) {
    const bool behind =
        end - lane - 1 >= begin && __ldg(list.cols + end - lane - 1) * block >= past;
    hidden = __popc(__ballot_sync(~0u, behind));
    end -= hidden;
  }
  return end;
}
/// What to add to a sum that shows whether any of these is not finite: 0, or NaN.
template <int N>
__device__ float not_finite(const float (&sums)[N]) {
  float zeros[4] = {};  // four chains take a quarter of the time of one
#pragma unroll
  for (int i = 0; i < N; ++i) zeros[i % 4] += 0 * sums[i];
  return zeros[0] + zeros[1] + (zeros[2] + zeros[3]);
}
/// Takes to memory those of 64 staged rows, of 16-bit elements, that come before their sequence's
/// end: the copy engine would write them all. They are pieces of 64 columns; `first` is their first
/// in the layout, `column` the first column. All threads of a warpgroup.
template <int dim>
__device__ void store_rows_of_end(const AttentionRows<void>& to, const WarpgroupAttention& a,
                                  int head, unsigned staging, int first, int column = 0) {
  constexpr int chunks = dim / 8;
  const AttentionPlace place = a.places.of(first);
  auto* const rows = static_cast<char*>(to.data) + 2 * head * to.head;
  for (int i = static_cast<int>(fresh_thread()) % warpgroup_size; i < 64 * chunks;
       i += warpgroup_size) {
    const int row = i / chunks, chunk = i % chunks;
    if (first + row >= place.end || column + chunk * 8 >= a.head_dim) continue;
    const unsigned from = staging + chunk / 8 * (64 * 128) + row * 128 + (chunk % 8 ^ row % 8) * 16;
    *reinterpret_cast<float4*>(
        rows + 2 * ((first + row - place.shift) * to.row + column + chunk * 8)) = load_shared(from);
  }
}
/// Whether the first `count` lanes have numbers one after the other, none of them negative.
template <int count>
__device__ inline bool in_a_row(int number) {
  const int lane = static_cast<int>(threadIdx.x) % 32, first = __shfl_sync(~0u, number, 0);
  return __all_sync(~0u, lane >= count || (first >= 0 && number == first + lane));
}
/// Called once by each of `workers` that found no more: the last one puts the counters back.
__device__ inline void leave_attention(const WarpgroupAttention& p, int workers) {
  if (atomicAdd(p.next + 1, 1) + 1 == workers) p.next[0] = p.next[1] = 0;
}

}  // namespace bs::cuda::device

#pragma once
// What a CTA of the forward pass on wgmma takes at a time, as its copying warp sees it.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>

namespace bs::cuda::device {

/// A tile of queries of a head.
template <int rows, int pieces, int record>
struct AttentionForwardItem {
  int tile, head;    // head: among those of all batches
  int begin, count;  // of its records
  int shift;         // of its rows and keys in memory

  __device__ AttentionForwardItem(const WarpgroupAttentionParams& p, int number) {
    const int ahead = p.list.ahead * p.batch_heads;
    int rank;
    if (number < ahead) {
      rank = number / p.batch_heads;
      head = number % p.batch_heads;
    } else {
      const int of_head = p.list.tiles - p.list.ahead, windows = p.batch_heads / p.window;
      const int rest = number - ahead, window = min(rest / (p.window * of_head), windows - 1);
      const int first = window * p.window, within = rest - first * of_head;
      // The last one has the heads that are left over too: more small items end more evenly.
      const int size = window < windows - 1 ? p.window : p.batch_heads - first;
      rank = p.list.ahead + within / size;
      head = first + within % size;
    }
    const int line = head % p.list.heads;
    const int4 entry =
        __ldg(reinterpret_cast<const int4*>(p.list.items) + line * p.list.tiles + rank);
    tile = entry.x;
    begin = entry.y;
    count = entry.z;
    shift = p.places.of(tile * rows).shift;
  }
  /// Lane l gets word l of a record; of one that is not there, keys beyond the last.
  __device__ int look_up(const WarpgroupAttentionParams& p, int at) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < record && at < count)
      return __ldg(p.list.records + (begin + at) * static_cast<long long>(record) + lane);
    return lane < pieces ? p.keys : 0;
  }
};

}  // namespace bs::cuda::device

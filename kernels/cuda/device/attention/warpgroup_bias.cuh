#pragma once
// A bias of all scores, as kernels of the forward pass on wgmma read it: straight from memory,
// while products run.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them. Its dtype is that of the operands.
template <class T, int Cols, int Piece>
struct AttentionTileBias {
  unsigned pairs[Cols / 4];  ///< of two neighbouring keys each

  /// @param[in] row,head the warp's first row; its head among those of all batches
  __device__ __forceinline__ void look_up(const WarpgroupAttentionParams& p, int row, int head,
                                          const int (&keys)[Cols / Piece]) {
    const AttentionRows<const void>& bias = p.terms.bias;
    const int lane = static_cast<int>(fresh_thread()) % 32, first = row + lane / 4;
    const auto* const from = static_cast<const T*>(bias.data) + head / p.heads * bias.batch +
                             head % p.heads * bias.head + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < Cols / 8; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int query = first + 8 * h, key = keys[n * 8 / Piece] + n * 8 % Piece;
        const bool there = query < p.places.rows && key + lane % 4 * 2 < p.keys;
        const T* const at = from + query * bias.row + key;
        pairs[2 * n + h] = there ? __ldg(reinterpret_cast<const unsigned*>(at)) : 0;
      }
  }
  /// To scores for powers of two.
  __device__ __forceinline__ void add(float (&s)[Cols / 2]) const {
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i) {
      const T* const pair = reinterpret_cast<const T*>(&pairs[i / 2]);
      s[i] += widen(pair[i % 2]) * 1.4426950408889634F;
    }
  }
};

}  // namespace bs::cuda::device

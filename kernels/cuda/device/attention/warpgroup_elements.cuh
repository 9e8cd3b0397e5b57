#pragma once
// What kernels of the forward pass on wgmma know of single scores: masks, biases and dropout.
#include <bs/kernels/cuda/device/attention/warpgroup_bias.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_dropout.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_mask_bits.cuh>

namespace bs::cuda::device {

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them.
template <class T, int Cols, int Piece, int block, unsigned rules>
struct AttentionTileElements {
  static constexpr bool drops = (rules & rule_dropout) != 0, masked = (rules & rule_bits) != 0;
  static constexpr bool biased = (rules & rule_bias) != 0, any = drops || masked || biased;
  AttentionTileDropout<Cols, Piece> dropout;
  AttentionTileBits<Cols, Piece, block> seen;
  AttentionTileBias<T, Cols, Piece> bias;

  /// What can be known of scores before they are there.
  /// @param[in] row,head the warp's first row; its head among those of all batches
  /// @param[in] present a bit for each piece that the rows have
  __device__ __forceinline__ void look_up(const WarpgroupAttentionParams& p, int row, int head,
                                          const int (&keys)[Cols / Piece], unsigned present) {
    const AttentionTerms& t = p.terms;
    if constexpr (any)
      asm volatile("" : "+r"(row), "+r"(head));  // or what follows from them is kept for an item
    if constexpr (drops)
      dropout.draw(t.dropout,
                   static_cast<long long>(head) * t.dropout.rows + row - p.places.of(row).shift,
                   t.dropout.begin(row), keys);
    if constexpr (masked) seen.look_up(t.bits, t.bits.head(head, p.heads), row, keys, present);
    if constexpr (biased) bias.look_up(p, row, head, keys);
  }
  /// To scores for powers of two.
  __device__ __forceinline__ void add(float (&s)[Cols / 2]) const {
    if constexpr (biased) bias.add(s);
  }
  __device__ __forceinline__ void hide(float (&s)[Cols / 2], float to) const {
    if constexpr (masked) seen.hide(s, to);
  }
  /// Of weights, but for the factor of what is kept.
  __device__ __forceinline__ void drop(float (&weights)[Cols / 2]) const {
    if constexpr (drops) dropout.apply(weights);
  }
};

}  // namespace bs::cuda::device

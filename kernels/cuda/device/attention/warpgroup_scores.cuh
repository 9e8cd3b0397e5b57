#pragma once
// What kernels of the forward pass that know of softcap or slopes make of their products.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them.
template <int Cols, int Piece, unsigned rules>
struct AttentionShape {
  static constexpr bool capped = (rules & rule_softcap) != 0, sloped = (rules & rule_slopes) != 0;
  float slope;  ///< of the head, for powers of two

  __device__ void look_up(const WarpgroupAttentionParams& p, int head) {
    if constexpr (sloped) slope = p.terms.slopes[head % p.heads] * 1.4426950408889634F;
  }
  /// Makes scores of products, of which scale() is then the factor.
  __device__ __forceinline__ void apply(float (&s)[Cols / 2], const WarpgroupAttentionParams& p,
                                        int row, const int (&keys)[Cols / Piece]) const {
    if constexpr (capped) {
#pragma unroll
      for (float& x : s) x = fast_tanh(x * p.terms.inner);
    }
    if constexpr (sloped) {
      const int lane = static_cast<int>(fresh_thread()) % 32;
      const int own = row + lane / 4 - lane % 4 * 2 + p.terms.origin;
#pragma unroll
      for (int n = 0; n < Cols / Piece; ++n) {
        const auto first = static_cast<float>(keys[n] - own);
#pragma unroll
        for (int i = 0; i < Piece / 2; ++i) {
          const float distance = first + static_cast<float>(i / 4 * 8 + i % 2 - i / 2 % 2 * 8);
          float& x = s[n * (Piece / 2) + i];
          x = x * p.scale - slope * fabsf(distance);
        }
      }
    }
  }
  __device__ static float scale(const WarpgroupAttentionParams& p) { return sloped ? 1 : p.scale; }
};

}  // namespace bs::cuda::device

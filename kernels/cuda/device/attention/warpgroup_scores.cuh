#pragma once
// What kernels of the forward pass that know of a cap, slopes, a table or a bias make of their
// products.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda::device {

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them.
template <int Cols, int Piece, unsigned rules>
struct AttentionShape {
  static constexpr bool capped = (rules & rule_softcap) != 0, sloped = (rules & rule_slopes) != 0;
  static constexpr bool tabled = (rules & rule_table) != 0, biased = (rules & rule_bias) != 0;
  static constexpr bool adds = sloped || tabled || biased;
  static constexpr float log2_e = 1.4426950408889634F;
  float slope;         ///< of the head, for powers of two
  const float* table;  ///< the head's, at distance 0

  __device__ void look_up(const WarpgroupAttentionParams& p, int head) {
    const AttentionTerms& t = p.terms;
    if constexpr (sloped) slope = t.slopes[head % p.heads] * log2_e;
    if constexpr (tabled) table = t.table + head % p.heads * t.table_head + t.table_reach;
  }
  /// Makes scores of products, of which scale() is then the factor.
  __device__ __forceinline__ void apply(float (&s)[Cols / 2], const WarpgroupAttentionParams& p,
                                        int row, const int (&keys)[Cols / Piece]) const {
    if constexpr (capped) {
#pragma unroll
      for (float& x : s) x = fast_tanh(x * p.terms.inner);
    }
    if constexpr (adds) {
#pragma unroll
      for (float& x : s) x *= p.scale;
    }
    if constexpr (tabled) add_table(s, p, row, keys);
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
          x -= slope * fabsf(distance);
        }
      }
    }
  }
  __device__ static float scale(const WarpgroupAttentionParams& p) { return adds ? 1 : p.scale; }

 private:
  __device__ __forceinline__ void add_table(float (&s)[Cols / 2], const WarpgroupAttentionParams& p,
                                            int row, const int (&keys)[Cols / Piece]) const {
    const int lane = static_cast<int>(fresh_thread()) % 32, reach = p.terms.table_reach;
    const int own = row + lane / 4 - lane % 4 * 2 + p.terms.origin;
#pragma unroll
    for (int n = 0; n < Cols / Piece; ++n)
#pragma unroll
      for (int i = 0; i < Piece / 2; ++i) {
        const int distance = keys[n] - own + i / 4 * 8 + i % 2 - i / 2 % 2 * 8;
        s[n * (Piece / 2) + i] += __ldg(table + min(max(distance, -reach), reach)) * log2_e;
      }
  }
};

}  // namespace bs::cuda::device

#pragma once
// What the key pass makes of its products of keys and queries: weights, and gradients of the
// products of those of the weights. A lane has 32 of a step, in fours of two queries by two keys.
#include <bs/kernels/cuda/device/attention/warpgroup_backward_keys.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_backward_problem.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_dropout.cuh>
#include <bs/kernels/cuda/device/attention/warpgroup_mask_bits.cuh>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>

namespace bs::cuda::device {

/// For a step. Between weigh() and differentiate() a capped score stays what tanh gave, and its
/// weight is made twice: registers have no room for the weight beside it.
template <class T, class Steps, unsigned rules>
struct AttentionStepScores {
  static constexpr bool capped = (rules & rule_softcap) != 0;
  static constexpr float log2_e = 1.4426950408889634F;

  /// What rules say of single scores: a bit for each number of a lane.
  struct Elements {
    unsigned kept;  ///< where dropout keeps the weight
    AttentionStepSeen<Steps> seen;

    /// While products run, and before gradients of weights take registers.
    __device__ void look_up(const AttentionTerms& terms, const typename Steps::Step& step,
                            int first_key) {
      if constexpr (Steps::drops) kept = draw_step<Steps>(terms.dropout, step, first_key);
      if constexpr (Steps::masked) seen.look_up(terms.bits, step, first_key);
    }
  };

  const AttentionTerms& terms;
  const typename Steps::Keys& keys;
  const typename Steps::Step& step;
  float factor;          ///< scale()
  const float* numbers;  ///< log_sums of a lane's queries, and 64 behind them means
  const Elements& elements;

  /// Of scores, for powers of two.
  __device__ static float scale(const WarpgroupAttention& a, const AttentionTerms& terms) {
    return capped ? terms.outer : a.log2_scale;
  }
  /// What becomes a weight of zero, as weigh() leaves it.
  __device__ static float hidden() { return capped ? minus_infinity<float>() : 0; }

  __device__ static unsigned pack(float low, float high) {
    const auto pair = narrow_pair(low, high, T{});
    return *reinterpret_cast<const unsigned*>(&pair);
  }

  /// Makes weights of products, or of capped ones what tanh gives.
  __device__ void weigh(float (&s)[32]) const {
    const Distances distances(*this);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      if constexpr (capped) {
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i + j] = fast_tanh(s[i + j] * terms.inner);
      } else {
        weigh_four(s + i, s + i, i, distances);
      }
    }
  }
  /// Weights as a left operand.
  __device__ void pack_weights(unsigned (&weights)[4][4], const float (&s)[32]) const {
    pack_weights(weights, s, [](int, float4) {});
  }
  /// The same. Before, give(i, four) gets what differentiates the weights from number i on:
  /// negative or -0 where dropout drops them, and 0 where they are hidden.
  template <class Give>
  __device__ void pack_weights(unsigned (&weights)[4][4], const float (&s)[32],
                               const Give& give) const {
    const Distances distances(*this);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      float four[4] = {s[i], s[i + 1], s[i + 2], s[i + 3]};
      if constexpr (capped) weigh_four(four, s + i, i, distances);
      float by[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        by[j] = capped && four[j] != 0 ? four[j] * (1 - s[i + j] * s[i + j]) : four[j];
        if (Steps::drops && !(elements.kept >> (i + j) & 1)) by[j] = -by[j];
      }
      give(i, make_float4(by[0], by[1], by[2], by[3]));
      if constexpr (Steps::drops) drop_four(four, {elements.kept, false}, i);
      weights[i / 8][i / 2 % 4] = pack(four[0], four[1]);
      weights[i / 8][i / 2 % 4 + 1] = pack(four[2], four[3]);
    }
  }
  /// Makes gradients of products of those of weights.
  __device__ void differentiate(float (&dp)[32], float (&s)[32]) const {
    if constexpr (capped) warpgroup_pin(s);  // or the weights of before are kept beside them
    const Distances distances(*this);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      const float2 mean = *reinterpret_cast<const float2*>(numbers + 64 + i * 2);
      float four[4] = {s[i], s[i + 1], s[i + 2], s[i + 3]};
      if constexpr (capped) {
        weigh_four(four, s + i, i, distances);
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] *= 1 - s[i + j] * s[i + j];
      }
      if constexpr (Steps::drops) {
        drop_four(dp + i, {__brev(elements.kept), true}, i);
#pragma unroll
        for (int j = 0; j < 4; ++j) dp[i + j] *= terms.dropout.kept;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) dp[i + j] = four[j] * (dp[i + j] - (j % 2 ? mean.y : mean.x));
    }
  }

 private:
  /// Of a lane's keys from its queries.
  struct Distances {
    float first[Steps::entries];  ///< of the first key from the first query of each entry

    __device__ explicit Distances(const AttentionStepScores& scores) {
      if constexpr (Steps::sloped || Steps::tabled) {
        const int own = scores.keys.own(0) - scores.terms.origin;
#pragma unroll
        for (int e = 0; e < Steps::entries; ++e)
          first[e] = static_cast<float>(own - scores.step.query[e]);
      }
    }
    __device__ float at(int i) const {
      constexpr int side = Steps::side;
      return first[i / 4 * 8 / side] + static_cast<float>(i / 2 % 2 * 8 - i / 4 * 8 % side - i % 2);
    }
  };

  /// The factor of what is kept is left to the sums.
  __device__ static void drop_four(float* weights, const TurnedBits& kept, int i) {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (!kept.has(i + j)) weights[j] = 0;
  }
  __device__ float table_at(float distance) const {
    const auto reach = static_cast<float>(terms.table_reach);
    return __ldg(step.table + static_cast<int>(fminf(fmaxf(distance, -reach), reach)));
  }
  /// Of a lane's number i. What is hidden may lie beyond the last query or key.
  __device__ float bias_at(int i) const {
    constexpr int side = Steps::side;
    const int thread = static_cast<int>(fresh_thread()) % warpgroup_size, lane = thread % 32;
    const int query = step.query[i / 4 * 8 / side] + i / 4 * 8 % side + lane % 4 * 2 + i % 2;
    const int key = keys.first + thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
    const T* const at = static_cast<const T*>(step.bias) +
                        min(query, terms.last_query) * terms.bias.row + min(key, terms.last_key);
    return widen(*at);
  }
  __device__ void weigh_four(float* weights, const float* s, int i,
                             const Distances& distances) const {
    const float2 log_sum = *reinterpret_cast<const float2*>(numbers + i * 2);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float score = s[j] * factor;
      if constexpr (Steps::tabled) score += table_at(distances.at(i + j)) * log2_e;
      if constexpr (Steps::biased) score += bias_at(i + j) * log2_e;
      if constexpr (Steps::sloped) score -= step.slope * fabsf(distances.at(i + j));
      weights[j] = exp2_of(score - (j % 2 ? log_sum.y : log_sum.x));
    }
  }
};

}  // namespace bs::cuda::device

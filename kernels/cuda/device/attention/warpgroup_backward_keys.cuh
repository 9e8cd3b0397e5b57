#pragma once
// The steps that a strip of keys takes over the queries that it meets, and which of their scores
// are hidden.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

// What a step says beside its queries, where kernels know of it.

template <bool sloped>
struct AttentionStepSlope {
  float slope;  ///< of the head, for powers of two
};
template <>
struct AttentionStepSlope<false> {};

template <bool tabled>
struct AttentionStepTable {
  const float* table;  ///< the head's, at distance 0
};
template <>
struct AttentionStepTable<false> {};

template <bool biased>
struct AttentionStepBias {
  const void* bias;  ///< the head's
};
template <>
struct AttentionStepBias<false> {};

template <bool drops>
struct AttentionStepRandom {
  unsigned long long first_row, sequence;  ///< of lse, that of row 0; of the random words
  int begin;                               ///< of the sequence's keys
};
template <>
struct AttentionStepRandom<false> {};

template <int blocks>
struct AttentionStepBits {
  int bits[blocks];  ///< where those of a mask are, as bits_place() has it
};
template <>
struct AttentionStepBits<0> {};

template <bool shared>
struct AttentionStepOwners {
  unsigned owners;  ///< a bit for each warpgroup whose keys have a block
};
template <>
struct AttentionStepOwners<false> {};

/// For blocks of one size. `banded` as AttentionHide has it. A strip of `strip` keys meets 64
/// queries a step, blocks or halves of blocks.
template <int block_, int strip_, bool banded, unsigned rules>
struct AttentionKeySteps {
  static constexpr int block = block_, strip = strip_;
  static constexpr int side = block < 64 ? block : 64;  // queries of an entry of a step
  static constexpr int entries = 64 / side;
  static constexpr int cols = block < strip ? strip / block : 1;  // block columns of a strip
  static constexpr int own_cols = block < 64 ? 64 / block : 1;    // of a warpgroup
  /// Whether a step may have no block of a warpgroup's keys; and whether it has several of them.
  static constexpr bool shared = cols > own_cols, owned = shared && own_cols > 1;
  static constexpr int parts = block > strip ? block / strip : 1;  // strips of a block column

  static constexpr bool sloped = (rules & rule_slopes) != 0;
  static constexpr bool drops = (rules & rule_dropout) != 0;
  static constexpr bool masked = (rules & rule_bits) != 0;
  static constexpr bool tabled = (rules & rule_table) != 0;
  static constexpr bool biased = (rules & rule_bias) != 0;
  /// Kernels with no register left to keep what follows from the thread's number in.
  static constexpr bool scarce = drops || masked || tabled || biased;

  /// The queries of a step and their blocks.
  struct Step : AttentionStepRandom<drops>,
                AttentionStepTable<tabled>,
                AttentionStepBias<biased>,
                AttentionStepSlope<sloped>,
                AttentionStepBits<masked ? entries * cols : 0>,
                AttentionStepOwners<owned> {
    int query[entries];  ///< the first one of each entry, ascending; [0] is -1 behind the last step
    int value[entries * cols];  ///< of the memory, or -1
  };

  /// The keys of a warpgroup.
  struct Keys {
    int first;
    unsigned padding;  ///< a bit for each of a lane's rows that nobody sees, and one for any of the
                       ///< warp's

    __device__ bool padded(int row) const { return (padding >> row & 1) != 0; }

    /// Whether a step has a block of the warpgroup's keys.
    __device__ bool any(const Step& step) const {
      const int own = first % strip / 64;
      if constexpr (owned) return (step.owners >> own & 1) != 0;
      if constexpr (shared) return step.value[own] >= 0;
      return true;
    }
    /// Which entries of a step the warp's keys have blocks of, a bit each; and one more where some
    /// of the scores there may be hidden.
    __device__ unsigned seen(const Step& step, const AttentionReach& reach) const {
      constexpr unsigned all = (1U << entries) - 1;
      unsigned bits = all;
      if constexpr (block < 64) {
        const int own = shared ? first % strip : 0;
        const int column =
            (own + static_cast<int>(fresh_thread()) % warpgroup_size / 32 * 16) / block;
        bits = 0;
#pragma unroll
        for (int e = 0; e < entries; ++e)
          bits |= static_cast<unsigned>(step.value[e * cols + column] >= 0) << e;
      }
      bool hides = padding != 0;
      if (banded)
        hides = hides || step.query[0] < first + 63 - reach.last ||
                step.query[entries - 1] + side - 1 > first - reach.first;
      else
        hides = hides || (reach.causal() && step.query[0] < first + 63);
      if (hides) bits |= all + 1;
      return bits;
    }
    /// Whether none of the scores is hidden.
    __device__ static bool whole(unsigned seen) { return seen == (1U << entries) - 1; }

    /// Sets those of a step that are hidden to `to`.
    __device__ void hide(float (&sums)[32], float to, const Step& step, const AttentionReach& reach,
                         unsigned seen) const {
      if constexpr (block < 64) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
          if ((seen >> (i / 4 * 8 / side) & 1) == 0) sums[i] = to;
      }
      if (seen >> entries == 0) return;
      if constexpr (banded)
        hide_beyond(sums, to, step, reach);
      else
        hide_before(sums, to, step, reach);
    }

    /// A lane's key `row` of two, less the place of its first query.
    __device__ int own(int row) const {
      const unsigned thread = fresh_thread() % warpgroup_size, lane = thread % 32;
      return first + static_cast<int>(thread / 32 * 16 + lane / 4 - lane % 4 * 2) + 8 * row;
    }

   private:
    /// The query of number `i` of a lane, less the place of its first.
    __device__ static int query_of(const Step& step, int i) {
      return step.query[i / 4 * 8 / side] + i / 4 * 8 % side + i % 2;
    }
    __device__ void hide_before(float (&sums)[32], float to, const Step& step,
                                const AttentionReach& reach) const {
      int least[2];  // the first query that sees each of this lane's keys
#pragma unroll
      for (int i = 0; i < 2; ++i) least[i] = padded(i) ? 0x7fffffff : reach.causal() ? own(i) : 0;
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (query_of(step, i) < least[i / 2 % 2]) sums[i] = to;
    }
    /// A key after the other, which takes fewer registers.
    __device__ void hide_beyond(float (&sums)[32], float to, const Step& step,
                                const AttentionReach& reach) const {
#pragma unroll 1
      for (int row = 0; row < 2; ++row) {
        const int least = padded(row) ? 0x7fffffff : own(row) - reach.last;
        // One comparison for both bounds takes no register for the second.
        const auto span = static_cast<unsigned>(reach.last) - static_cast<unsigned>(reach.first);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const auto beyond =
              static_cast<unsigned>(query_of(step, i)) - static_cast<unsigned>(least);
          if (row == i / 2 % 2 && beyond > span) sums[i] = to;
        }
      }
    }
  };
};

}  // namespace bs::cuda::device

#pragma once
// What both directions of a transducer's joint have in common on the device: its rules, groups of
// columns that a thread moves at once, and which of their elements are dropped.
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/arithmetic.cuh>
#include <bs/kernels/cuda/device/pack.cuh>
#include <bs/kernels/cuda/transducer_lattice.cuh>

#include <bit>

namespace bs::cuda::joint {

using device::narrow;
using device::Pack;
using device::Raw;
using device::wide;
using device::widen;

inline constexpr int bits_group = 8;      ///< columns that share one block of random bits
inline constexpr int frames_at_once = 4;  ///< that a thread has: it reads g once for all of them

/// Columns of a thread: 16 bytes of T, so that the threads of a warp move whole sectors.
template <class T>
inline constexpr int group = device::pack_size<T>;

/// Random bits of G columns in two frames, 16 each.
template <int G>
using Words = unsigned[2][G / 2];

/// Sizes, rules and where utterances lie.
struct Joint {
  Utterances utterances;
  int frames, columns;  ///< padded; columns: labels + 1
  int64_t n;
  bool relu, drops;
  unsigned dropped;  ///< of 16 random bits and 16 bits more: up to this number
  double scale;      ///< of what is kept
  float narrow_scale;
  PhiloxKeys keys;
  uint64_t sequence;
  int64_t first_utterance;

  /// Blocks of random bits from a frame's to the next's.
  __device__ int64_t frame_blocks() const { return columns * row_blocks(); }
  __device__ int64_t row_blocks() const { return (n + bits_group - 1) / bits_group; }
  /// The block of group `which`, of G columns, of row (b, t, u).
  template <int G>
  __device__ int64_t block_of(int b, int t, int u, int64_t which) const {
    const int64_t row = ((first_utterance + b) * frames + t) * columns + u;
    return row * row_blocks() + which * G / bits_group;
  }
  /// The bits of group `which` in two frames, from the block of the first frame. `paired`: the
  /// thread of the next lane, or the one before where `which` is odd, asks for the group beside.
  template <int G, bool paired>
  __device__ void bits(Words<G>& word, int64_t block, int64_t which) const {
    const auto at = [&](int64_t number) {
      return philox(keys, static_cast<uint64_t>(number), sequence);
    };
    const bool odd = which % 2 != 0;
    if constexpr (G == 4 && paired) {  // both have halves of the same blocks: one each
      const PhiloxBlock own = at(odd ? block + frame_blocks() : block);
      const unsigned both = 3U << (threadIdx.x % 32 & 30);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned other = __shfl_xor_sync(both, odd ? own.word[i] : own.word[i + 2], 1);
        word[0][i] = odd ? other : own.word[i];
        word[1][i] = odd ? own.word[i + 2] : other;
      }
      return;
    }
    constexpr int parts = bits_group / G;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const PhiloxBlock own = at(block + r * frame_blocks());
      const int part = static_cast<int>(which % parts);
#pragma unroll
      for (int i = 0; i < G / 2; ++i) {
        word[r][i] = own.word[i];
#pragma unroll
        for (int k = 1; k < parts; ++k)
          if (part == k) word[r][i] = own.word[k * G / 2 + i];
      }
    }
  }
  /// Multiplies values by their factors.
  template <class W, int G>
  __device__ void drop(W (&values)[G], const unsigned (&word)[G / 2]) const {
    const W factor = sizeof(W) == 4 ? W(narrow_scale) : W(scale);
#pragma unroll
    for (int i = 0; i < G; ++i) {
      const unsigned own = i % 2 == 0 ? word[i / 2] << 16 : word[i / 2];
      values[i] = own <= dropped ? W(0) : values[i] * factor;
    }
  }
};

inline Joint joint_of(const char* op, const TransducerSizes& s, const Tensor& table,
                      const TransducerJointOptions& options, RandomState state) {
  BS_CHECK(s.batch * s.frames <= INT32_MAX && s.labels < INT32_MAX,
           "{}: {} utterances of {} frames are too many", op, s.batch, s.frames);
  const detail::JointDropout dropout = detail::joint_dropout(options.dropout);
  return {utterances(s, table),
          static_cast<int>(s.frames),
          static_cast<int>(s.labels + 1),
          s.classes,
          options.relu,
          dropout.limit > 0,
          static_cast<unsigned>((uint64_t{dropout.limit} << 16) - 1),
          dropout.scale,
          static_cast<float>(dropout.scale),
          PhiloxKeys(state.seed),
          state.offset,
          options.first_utterance};
}

/// Whether rows of n columns can be moved 16 bytes at a time, and bits be shared by neighbours.
inline bool is_aligned(int64_t n, std::initializer_list<const void*> pointers) {
  if (n % bits_group != 0) return false;
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

/// x where it is positive or NaN, else zero.
__device__ inline float cut_off(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double cut_off(double x) { return x < 0 ? 0 : x; }

/// One group of columns of a row of n, as 16 bytes where rows allow it.
template <class T, bool aligned>
struct Group {
  static constexpr int G = group<T>;
  Raw<T, G> raw;

  __device__ void widen_to(wide<T> (&values)[G]) const {
    const auto pack = std::bit_cast<Pack<T, G>>(raw);
#pragma unroll
    for (int i = 0; i < G; ++i) values[i] = widen(pack.at[i]);
  }
  __device__ void load(const T* row, int64_t which, int64_t n) {
    if constexpr (aligned) {
      raw = reinterpret_cast<const Raw<T, G>*>(row)[which];
    } else {
      Pack<T, G> some;
#pragma unroll
      for (int i = 0; i < G; ++i) some.at[i] = which * G + i < n ? row[which * G + i] : T{};
      raw = std::bit_cast<Raw<T, G>>(some);
    }
  }
  static __device__ void store(T* row, int64_t which, int64_t n, const wide<T> (&values)[G]) {
    const Pack<T, G> some = device::narrow_pack<T>(values);
    if constexpr (aligned) {
      reinterpret_cast<Pack<T, G>*>(row)[which] = some;
    } else {
#pragma unroll
      for (int i = 0; i < G; ++i)
        if (which * G + i < n) row[which * G + i] = some.at[i];
    }
  }
};

}  // namespace bs::cuda::joint

#pragma once
// What both directions of a transducer's joint have in common on the device: its rules, groups of
// columns that a thread moves at once, and which of their elements are dropped.
#include <bs/kernels/transducer_joint.h>
#include <bs/lib/philox.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/device/tile/pack.cuh>
#include <bs/kernels/cuda/transducer/transducer_lattice.cuh>

#include <bit>

namespace bs::cuda::joint {

using device::narrow;
using device::Pack;
using device::Raw;
using device::wide;
using device::widen;

inline constexpr int bits_group = 8;  ///< columns that share one block of random bits

/// Columns of a thread: 16 bytes of T, so that the threads of a warp move whole sectors.
template <class T>
inline constexpr int group = device::pack_size<T>;

/// Random bits of G columns in two frames, 16 each.
template <int G>
using Words = unsigned[2][G / 2];

/// A thread's bits: detail::JointBits of its group of columns in four frames of a label.
template <class T>
using Field = std::conditional_t<sizeof(T) == 2, unsigned,
                                 std::conditional_t<sizeof(T) == 4, unsigned short, unsigned char>>;
inline constexpr int frames_at_once = detail::JointBits::frames;  ///< that a thread has

/// x where it is positive or NaN, else zero.
__device__ inline float cut_off(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double cut_off(double x) { return x < 0 ? 0 : x; }

/// Two 16-bit floats that are a word.
template <class T>
using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
template <class T>
__device__ inline Two<T> two(unsigned word) {
  return reinterpret_cast<const Two<T>&>(word);
}

/// Sizes, rules and where utterances lie.
struct Joint {
  Utterances utterances;
  int frames, columns;  ///< padded; columns: labels + 1
  int64_t n;
  bool relu, drops;
  detail::JointBits layout;
  unsigned bounds;  ///< JointDropout's, twice
  double scale;     ///< of what is kept
  float narrow_scale;
  unsigned floor;   ///< two 16-bit floats that h is not below: zeros, or -infinities
  unsigned limits;  ///< bits of what is cut off up to here: of zero, or of NaN for nothing
  PhiloxKeys<detail::JointDropout::rounds> keys;
  RandomState state;
  unsigned first_frame;  ///< number of the first utterance's first

  /// Where an utterance's bits begin.
  template <class T>
  __device__ Field<T>* fields(unsigned* kept, const Utterance& one, int b) const {
    return reinterpret_cast<Field<T>*>(kept) + layout.first(one.row, b);
  }
  /// Blocks of random bits of a row.
  __device__ unsigned row_blocks() const {
    return static_cast<unsigned>((n + bits_group - 1) / bits_group);
  }
  /// Number of frame t of utterance b, of all utterances' frames.
  __device__ unsigned frame_number(int b, int t) const {
    return first_frame + static_cast<unsigned>(b * frames + t);
  }
  /// The bits of group `which` of a row in two frames, from the number of the first and that of the
  /// block in them. `paired`: the thread of the next lane, or the one before where `which` is odd,
  /// asks for the group beside.
  template <int G, bool paired>
  __device__ void bits(Words<G>& word, uint64_t sequence, unsigned frame, unsigned block,
                       int which) const {
    const auto at = [&](unsigned frame) {
      return philox(keys, uint64_t{frame} << 32 | block, sequence);
    };
    const bool odd = which % 2 != 0;
    if constexpr (G == 4 && paired) {  // both have halves of the same blocks: one each
      const PhiloxBlock own = at(odd ? frame + 1 : frame);
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
      const PhiloxBlock own = at(frame + r);
      const int part = which % parts;
#pragma unroll
      for (int i = 0; i < G / 2; ++i) {
        word[r][i] = own.word[i];
#pragma unroll
        for (int k = 1; k < parts; ++k)
          if (part == k) word[r][i] = own.word[k * G / 2 + i];
      }
    }
  }
  /// What is kept is multiplied by this.
  template <class W>
  __device__ W factor() const {
    return sizeof(W) == 4 ? W(narrow_scale) : W(scale);
  }
  /// Which of two elements are dropped, from their random bits: all bits of halves of a word.
  __device__ unsigned dropped(unsigned word) const {
    return __hlt2_mask(reinterpret_cast<const __nv_bfloat162&>(word),
                       reinterpret_cast<const __nv_bfloat162&>(bounds));
  }
  /// Makes zeros of what is cut off or dropped of a group of frame r. Returns the others' bits.
  template <class T, int G>
  __device__ unsigned keep(Raw<T, G>& values, const unsigned (&word)[G / 2], int r) const {
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < G / 2; ++i) {
      const unsigned low = 1U << detail::JointBits::bit(G, r, 2 * i);
      const unsigned high = 1U << detail::JointBits::bit(G, r, 2 * i + 1);
      if constexpr (sizeof(T) == 2) {
        const unsigned kept =
            __hgtu2_mask(two<T>(values.at[i]), two<T>(limits)) & ~dropped(word[i]);
        values.at[i] &= kept;
        bits |= kept & (low | high);
      } else {
        auto& elements = reinterpret_cast<Pack<T, G>&>(values);
        keep_two(elements.at[2 * i], elements.at[2 * i + 1], word[i], bits, low, high);
      }
    }
    return bits;
  }
  /// The same for two elements, of which bits are `low` and `high`.
  template <class T>
  __device__ void keep_two(T& first, T& second, unsigned word, unsigned& bits, unsigned low,
                           unsigned high) const {
    const unsigned drops = dropped(word);
    const T limit = relu ? T(0) : T(NAN);
    const bool keeps_first = (drops & 0xffffU) == 0 && !(first <= limit);
    const bool keeps_second = drops >> 16 == 0 && !(second <= limit);
    first = keeps_first ? first : T(0);
    second = keeps_second ? second : T(0);
    bits |= (keeps_first ? low : 0) | (keeps_second ? high : 0);
  }
#if __CUDA_ARCH__ >= 900
  /// Without masks where bfloat16 can be compared into predicates.
  __device__ void keep_two(float& first, float& second, unsigned word, unsigned& bits, unsigned low,
                           unsigned high) const {
    asm("{.reg .pred p, q;\n"
        "setp.lt.bf16x2 p|q, %3, %4;\n"
        "setp.gtu.and.f32 p, %0, %5, !p;\n"
        "setp.gtu.and.f32 q, %1, %5, !q;\n"
        "selp.f32 %0, %0, 0f00000000, p;\n"
        "selp.f32 %1, %1, 0f00000000, q;\n"
        "@p or.b32 %2, %2, %6;\n"
        "@q or.b32 %2, %2, %7;}"
        : "+f"(first), "+f"(second), "+r"(bits)
        : "r"(word), "r"(bounds), "f"(__uint_as_float(limits)), "r"(low), "r"(high));
  }
#endif
  /// A group's f + g as it is to be stored: multiplied by the factor of what is kept where some are
  /// dropped, else cut off below zero, in pairs where T is of 16 bits.
  template <class T, int G, bool drops>
  __device__ Raw<T, G> finished(wide<T> (&values)[G]) const {
#pragma unroll
    for (int i = 0; i < G; ++i) {
      if (drops) {
        values[i] *= factor<wide<T>>();
      } else if (sizeof(T) > 2 && relu) {
        values[i] = cut_off(values[i]);
      }
    }
    auto raw = std::bit_cast<Raw<T, G>>(device::narrow_pack<T>(values));
    if constexpr (sizeof(T) == 2 && !drops) {
#pragma unroll
      for (int i = 0; i < G / 2; ++i) {
        const Two<T> cut = __hmax2_nan(two<T>(raw.at[i]), two<T>(floor));
        raw.at[i] = reinterpret_cast<const unsigned&>(cut);
      }
    }
    return raw;
  }
};

inline Joint joint_of(const char* op, DType dtype, const TransducerSizes& s, const Tensor& table,
                      const TransducerJointOptions& options, RandomState state) {
  BS_CHECK(s.batch * s.frames <= INT32_MAX && (s.labels + 1) * s.classes <= INT32_MAX,
           "{}: {} utterances of {} frames with {} rows of {} are too many", op, s.batch, s.frames,
           s.labels + 1, s.classes);
  const detail::JointDropout dropout = detail::joint_dropout(options.dropout);
  return {utterances(s, table),
          static_cast<int>(s.frames),
          static_cast<int>(s.labels + 1),
          s.classes,
          options.relu,
          dropout.patterns > 0,
          detail::JointBits(dtype, s),
          dropout.bound * 0x10001U,
          dropout.scale,
          static_cast<float>(dropout.scale),
          options.relu   ? 0
          : dtype == f16 ? 0xfc00fc00U
                         : 0xff80ff80U,
          options.relu ? 0 : ~0U,
          PhiloxKeys<detail::JointDropout::rounds>(state.seed),
          state,
          static_cast<unsigned>(options.first_utterance * s.frames)};
}

/// The words of bits, null where there are none.
inline unsigned* words(const Tensor& kept) {
  return kept.defined() ? reinterpret_cast<unsigned*>(kept.data<int32_t>()) : nullptr;
}

/// Whether rows of n columns can be moved 16 bytes at a time, and bits be shared by neighbours.
inline bool is_aligned(int64_t n, std::initializer_list<const void*> pointers) {
  if (n % bits_group != 0) return false;
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

/// One group of columns of a row of n, as 16 bytes where rows allow it.
template <class T, bool aligned>
struct Group {
  static constexpr int G = group<T>;
  Raw<T, G> raw;

  __device__ void widen_to(wide<T> (&values)[G]) const { device::widen_pack<T>(raw, values); }
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
    store(row, which, n, std::bit_cast<Raw<T, G>>(device::narrow_pack<T>(values)));
  }
  static __device__ void store(T* row, int64_t which, int64_t n, const Raw<T, G>& values) {
    if constexpr (aligned) {
      reinterpret_cast<Raw<T, G>*>(row)[which] = values;
    } else {
      const auto some = std::bit_cast<Pack<T, G>>(values);
#pragma unroll
      for (int i = 0; i < G; ++i)
        if (which * G + i < n) row[which * G + i] = some.at[i];
    }
  }
};

}  // namespace bs::cuda::joint

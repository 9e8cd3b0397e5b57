#pragma once
// Masks of elements, a bit each, as kernels on wgmma read them: straight from memory, while
// products run.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

/// 32 bits, perhaps in the order from last to first. Those are other bits to the compiler: or it
/// would keep what it found of each until it is asked again, in registers that there are not.
struct TurnedBits {
  unsigned bits;
  bool turned;

  __device__ bool has(int i) const { return (bits >> (turned ? 31 - i : i) & 1) != 0; }
};

/// What the bits of block (row, col) of one of the mask's heads have as their place.
__device__ inline int bits_place(const AttentionBits& b, int head, int row, int col) {
  const long long at = (static_cast<long long>(head) * b.rows + row) * b.cols + col;
  return b.numbers ? __ldg(b.numbers + at) : static_cast<int>(at);
}

inline constexpr int no_bits = -1;  ///< place of a block of which nothing is seen

/// The bits of as many columns as a Word has, from `col` on, of row `row` of the block at a place.
template <class Word, int block>
__device__ inline unsigned bits_of(const AttentionBits& b, int place, int row, int col) {
  if (place < 0) return place == no_bits ? 0 : static_cast<Word>(~0u);
  const long long line = static_cast<long long>(place) * block + row;
  return __ldg(reinterpret_cast<const Word*>(b.bits + line * (block / 8) + col / 8));
}

template <bool whole>
struct BitsWord {
  using Type = unsigned;
};
template <>
struct BitsWord<false> {
  using Type = unsigned short;
};

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them. A lane keeps a word for each of its
/// two rows: of 32 columns it has two in each byte, and another 32 columns stand two bits higher.
template <int Cols, int Piece, int block>
struct AttentionTileBits {
  static constexpr int pieces = Cols / Piece;
  unsigned bits[2];

  /// @param[in] head of the mask
  /// @param[in] row the warp's first
  /// @param[in] present a bit for each piece that the rows have
  __device__ __forceinline__ void look_up(const AttentionBits& b, int head, int row,
                                          const int (&keys)[pieces], unsigned present) {
    const int lane = static_cast<int>(fresh_thread()) % 32;
    int places = no_bits;  // lane n has that of piece n
    if (lane < pieces && (present >> lane & 1) != 0)
      places = bits_place(b, head, row / block, keys[lane] / block);
    bits[0] = bits[1] = 0;
#pragma unroll
    for (int n = 0; n < pieces; ++n) {
      const int place = __shfl_sync(~0u, places, n);
      if constexpr (Piece < 32) {
        take(place, row % block + lane / 4, b, 0, n / 2, n % 2 * 16);
      } else {
#pragma unroll
        for (int w = 0; w < Piece / 32; ++w)
          take(place, row % block + lane / 4, b, keys[n] % block + 32 * w, n * (Piece / 32) + w, 0);
      }
    }
  }
  __device__ __forceinline__ void hide(float (&s)[Cols / 2], float to) const {
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i) {
      const int bit = i / 4 % 4 * 8 + i / 16 * 2 + i % 2;
      if ((bits[i / 2 % 2] >> bit & 1) == 0) s[i] = to;
    }
  }

 private:
  /// Columns from `col` of the block at a place on, which are from bit `from` of word `word` on.
  __device__ __forceinline__ void take(int place, int line, const AttentionBits& b, int col,
                                       int word, int from) {
    using Word = typename BitsWord<Piece >= 32>::Type;
    const int first = static_cast<int>(fresh_thread()) % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const unsigned all = bits_of<Word, block>(b, place, line + 8 * h, col) << from;
      bits[h] |= (all >> first & 0x03030303) << 2 * word;
    }
  }
};

/// Of a step of the key pass. Warps have 16 keys of one block column.
template <class Steps>
struct AttentionStepSeen {
  unsigned bits;  ///< those of number i of a lane stand at bit_of(i)

  /// @param[in] key the warpgroup's first
  __device__ __forceinline__ void look_up(const AttentionBits& b, const typename Steps::Step& step,
                                          int key) {
    constexpr int side = Steps::side, block = Steps::block;
    const int thread = static_cast<int>(fresh_thread()) % warpgroup_size, lane = thread % 32;
    const int own = key + thread / 32 * 16;
    const int entry = 2 * lane / side;  // a lane brings two queries, 16 keys of each
    const int place = step.bits[entry * Steps::cols + own % Steps::strip / block];
    const int row = step.query[entry] % block + 2 * lane % side;
    const unsigned first = bits_of<unsigned short, block>(b, place, row, own % block);
    const unsigned second = bits_of<unsigned short, block>(b, place, row + 1, own % block);
    const unsigned pair = first | second << 16;
    bits = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n)
      bits |= (__shfl_sync(~0u, pair, n * 4 + lane % 4) >> lane / 4 & 0x01010101) << n;
  }
  /// In fours of two queries by two keys, of which the queries are neighbours.
  static constexpr int bit_of(int i) { return i / 4 + i / 2 % 2 * 8 + i % 2 * 16; }

  __device__ __forceinline__ void hide(float (&s)[32], float to, bool again = false) const {
    const TurnedBits at{again ? __brev(bits) : bits, again};
#pragma unroll
    for (int i = 0; i < 32; ++i)
      if (!at.has(bit_of(i))) s[i] = to;
  }
};

}  // namespace bs::cuda::device

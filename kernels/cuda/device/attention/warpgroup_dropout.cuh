#pragma once
// Which weights dropout keeps, a bit for each element of a lane. It is drawn while products run. A
// block of random words is of four keys of a query, so lanes that share blocks draw some each.
#include <bs/kernels/cuda/device/attention/warpgroup_attention_problem.cuh>
#include <bs/kernels/cuda/device/ptx/warpgroup.cuh>

namespace bs::cuda::device {

__device__ inline unsigned long long attention_sequence(const AttentionDropout& d) {
  return d.shift ? d.offset + __ldg(d.shift) : d.offset;
}

/// Of a row of lse and the four keys from `key` on: a bit for each that is kept.
__device__ inline unsigned draw_four(const AttentionDropout& d, unsigned long long sequence,
                                     unsigned long long row, int key) {
  const PhiloxBlock words = philox(d.keys, row << 28 | static_cast<unsigned>(key) >> 2, sequence);
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(words.word[i] >= d.limit) << i;
  return bits;
}

/// Of a warp's 16 rows of a tile, as WarpgroupSoftmax has them.
template <int Cols, int Piece>
struct AttentionTileDropout {
  unsigned kept[Cols / 64];

  /// @param[in] first the warp's first row, of lse
  /// @param[in] begin where the sequence's keys begin
  __device__ __forceinline__ void draw(const AttentionDropout& d, long long first, int begin,
                                       const int (&keys)[Cols / Piece]) {
    const int lane = static_cast<int>(fresh_thread()) % 32, second = lane % 2;
    // Two lanes share four keys of two rows: each draws for one of the rows.
    const unsigned long long row = first + lane / 4 + 8 * second;
    const unsigned long long sequence = attention_sequence(d);
#pragma unroll
    for (int i = 0; i < Cols / 64; ++i) {
      unsigned own = 0;
#pragma unroll
      for (int n = 8 * i; n < 8 * i + 8; ++n) {
        const int key = keys[n * 8 / Piece] + n * 8 % Piece + lane % 4 / 2 * 4 - begin;
        own = own >> 4 | draw_four(d, sequence, row, key) << 28;
      }
      const unsigned other = __shfl_xor_sync(~0u, own, 1);
      const unsigned low = (second ? other : own) >> 2 * second & 0x33333333;
      const unsigned high = (second ? own : other) >> 2 * second & 0x33333333;
      kept[i] = low | high << 2;
    }
  }
  __device__ __forceinline__ void apply(float (&weights)[Cols / 2]) const {
#pragma unroll
    for (int i = 0; i < Cols / 2; ++i)
      if ((kept[i / 32] >> i % 32 & 1) == 0) weights[i] = 0;
  }
};

/// Of a step of the key pass: bit i is that of a lane's number i.
template <class Steps>
__device__ __forceinline__ unsigned draw_step(const AttentionDropout& d,
                                              const typename Steps::Step& step, int first_key) {
  const int thread = static_cast<int>(fresh_thread()) % warpgroup_size, lane = thread % 32;
  // Four lanes share four keys of 32 pairs of a query and one of two groups of keys.
  const int own = lane / 4 % 4;
  const int key = first_key - step.begin + thread / 32 * 16 + own / 2 * 8 + lane / 16 * 4;
  unsigned drawn = 0;
#pragma unroll 4  // eight would spill
  for (int n = 0; n < 8; ++n) {
    const int query = step.query[n * 8 / Steps::side] + n * 8 % Steps::side;
    const unsigned long long row = step.first_row + query + lane % 4 * 2 + own % 2;
    drawn = drawn >> 4 | draw_four(d, step.sequence, row, key) << 28;
  }
  unsigned kept = 0;
#pragma unroll
  for (int of = 0; of < 4; ++of)
    kept |= (__shfl_sync(~0u, drawn, lane & ~12 | of << 2) >> own & 0x11111111) << of;
  return kept;
}

}  // namespace bs::cuda::device

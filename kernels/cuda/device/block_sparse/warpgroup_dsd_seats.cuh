#pragma once
// Which blocks of S a stage of dsd has: seats of blocks, as many a 64-row tile as make its rows,
// and of those the tiles of one slice of the depth after those of the other. And how small blocks
// are copied to them.
#include <bs/kernels/cuda/device/ptx/async_copy.cuh>

namespace bs::cuda::device {

/// Bit q of each: seat q of a stage.
template <int Boxes>
struct DsdSeats {
  /// One bit a 64-row tile of a slice, at the place of its first seat.
  static constexpr unsigned tile_bits = Boxes == 4 ? 0x11111111u : Boxes == 2 ? 0x55555555u : ~0u;

  unsigned present;  // has a block
  unsigned tiles;    // tiles in use, as tile_bits
  unsigned clear;    // has none, is of a tile in use, and holds numbers of an earlier block

  /// For a warp whose lane q has the number of seat q's block, or -1; `dirty_word`: seats that hold
  /// numbers, of which it keeps account.
  __device__ DsdSeats(int block, unsigned& dirty_word) {
    const unsigned dirty = dirty_word;
    present = __ballot_sync(~0u, block >= 0);
    tiles = present;
    if constexpr (Boxes >= 2) tiles |= tiles >> 1;
    if constexpr (Boxes == 4) tiles |= tiles >> 2;
    tiles &= tile_bits;
    clear = tiles * ((1u << Boxes) - 1) & ~present & dirty;
    __syncwarp();
    dirty_word = (dirty & ~clear) | present;
  }
};

/// A warp's part of the copies of small 16-bit blocks, which are contiguous: seats `first`, first +
/// 2, ... of `Count`. Lane q has the number of seat q's block, among those at `values`.
/// seat_address(q): where even seats go, from `buffer` on; odd ones go one block after these.
template <int Block, int Count, int Boxes, class T, class Address>
__device__ inline void copy_seats(const T* values, int block, const DsdSeats<Boxes>& seat,
                                  int first, unsigned buffer, const Address& seat_address) {
  static_assert(Boxes % 2 == 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int line = 2 * Block;     // bytes
  constexpr int chunks = line / 16;   // of a line, exchanged as the tensor cores
  constexpr int span = 128 / line;    // expect: see matrix_descriptor
  constexpr int lines = 32 / chunks;  // that a warp copies at once
  static_assert(lines / span % chunks == 0 || lines >= Block);
  const int row = lane / chunks;
  values += row * Block + lane % chunks * 8;
  unsigned to =
      buffer + first * Block * line + row * line + ((lane % chunks) ^ (row / span % chunks)) * 16;
  const int numbers = max(__shfl_down_sync(~0u, block, first), 0);
  const unsigned present = seat.present >> first, wanted = present | seat.clear >> first;
  asm volatile("" : "+l"(values), "+r"(to));  // or each seat's would be put together anew
  // Seat by seat, to the end: to go from one set bit to the next is a chain of waits.
#pragma unroll
  for (int q = 0; q < Count; q += 2) {
    const int number = __shfl_sync(~0u, numbers, q);
    if ((wanted >> q & 1) == 0) continue;
    const T* from = values + static_cast<long long>(number) * (Block * Block);
#pragma unroll
    for (int i = 0; i < Block; i += lines)
      copy_async_16(to + seat_address(q) + i * line, from + i * Block, present >> q & 1);
  }
}

}  // namespace bs::cuda::device

#pragma once
// Which blocks of S a stage of dsd has: slots of blocks, as many a 64-row tile as make its rows,
// and of those the tiles of one slice of the depth after those of the other.

namespace bs::cuda::device {

/// Bit q of each: slot q of a stage.
template <int Boxes>
struct DsdSlots {
  /// One bit a 64-row tile of a slice, at the place of its first slot.
  static constexpr unsigned tile_bits = Boxes == 4 ? 0x11111111u : Boxes == 2 ? 0x55555555u : ~0u;

  unsigned present;  // has a block
  unsigned tiles;    // tiles in use, as tile_bits
  unsigned clear;    // has none, is of a tile in use, and holds numbers of an earlier block

  /// For a warp whose lane q has the number of slot q's block, or -1; `dirty_word`: slots that hold
  /// numbers, of which it keeps account.
  __device__ DsdSlots(int block, unsigned& dirty_word) {
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

}  // namespace bs::cuda::device

#pragma once
/** @file Tiles of the f32 kernels of wgmma, and which products are theirs: pure functions. */
#include <cstdint>

namespace bs::cuda {

/** @brief How one CTA cuts its part of a product: two warpgroups multiply, a third one copies. */
struct Tf32Tile {
  int n = 0;       ///< rows of the narrow operand, op(S) or A: a block's, or half of them
  int wide = 0;    ///< 64s of columns of the wide one that a warpgroup has
  int stages = 0;  ///< of depth 32
  bool split = false;

  static constexpr int threads = 384;
  static constexpr int barriers = 1024;  ///< bytes kept for barriers and items
  constexpr int columns() const { return 2 * 64 * wide; }
  constexpr int shared_bytes() const {
    return stages * 128 * (columns() + n * (split ? 2 : 1)) + barriers + 1024;
  }
};

/** @brief The tile for a block of 64 or 128. `split` f32 has sums of a stage of their own, and so
 *  half as many. `broad`: 512 columns, so that blocks of 64 are used longer; L2 is what TF32 waits
 *  for. */
constexpr Tf32Tile tf32_tile(int block, bool split, bool broad) {
  if (split) return {.n = 64, .wide = 2, .stages = 4, .split = true};
  if (block == 128) return {.n = 128, .wide = 2, .stages = 4};
  return {.n = 64, .wide = broad ? 4 : 2, .stages = broad ? 3 : 5};
}

/** @brief Whether dsd with `strips` block rows and `columns` columns of C, of all its batch, had
 *  better have broad tiles: there are enough of them for two a multiprocessor. */
constexpr bool broad_tiles_pay(int block, bool split, int64_t strips, int64_t columns,
                               int64_t multiprocessors) {
  return block == 64 && !split && strips * (columns / 512) >= 2 * multiprocessors;
}

/** @brief Whether f32 products with these blocks go to wgmma on a GPU of this compute capability.
 *  Its instructions take 64 rows of op(S) or more, of which smaller blocks would leave most
 *  empty; and a tile 256 columns, of which few columns would.
 *  @param[in] columns of C, for sdd those that the longest row keeps */
constexpr bool tf32_warpgroup_applies(int block, int64_t columns, int capability) {
  return capability == 90 && (block == 64 || block == 128) && columns >= 192;
}

}  // namespace bs::cuda

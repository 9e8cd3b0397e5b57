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
  bool apart = false;  ///< each warpgroup has a narrow operand of its own
  int rows = 1;        ///< of dsd, block rows of the narrow operand

  static constexpr int threads = 384;
  static constexpr int barriers = 1024;  ///< bytes kept for barriers and items
  constexpr int columns() const { return 2 * 64 * wide; }
  constexpr int64_t sums() const { return int64_t{4} * n * columns(); }  ///< bytes
  constexpr int shared_bytes() const {
    const int lines = stages * (columns() + n * shares()) + (split ? smalls() * n * shares() : 0);
    return lines * 128 + barriers + 1024;
  }
  /// Places for the small parts of the narrow operand.
  constexpr int smalls() const { return apart ? 2 : stages; }
  /// Of sdd, what is gathered together: rows, and columns; an item has a share of as many for each
  /// warpgroup, where they are apart, else one.
  constexpr int shares() const { return apart ? 2 : 1; }
  constexpr int gathered_columns() const { return columns() / shares(); }
};

/** @brief The tile of dsd for a block of 32, 64 or 128, and of sdd for the last two. Two or four
 *  block rows of 32 are together, of which a stage multiplies those that have a block in its
 * column. `split` f32 has sums of a stage of their own, and so half as many. `large`: four block
 * rows of 32, or 512 columns, so that blocks of 64 are used longer; L2 is what TF32 waits for. */
constexpr Tf32Tile tf32_tile(int block, bool split, bool large) {
  const int rows = block == 32 ? 2 : 1;
  if (split) return {.n = 64, .wide = 2, .stages = 4, .split = true, .rows = rows};
  if (block == 128) return {.n = 128, .wide = 2, .stages = 4};
  if (block == 32 && large) return {.n = 128, .wide = 2, .stages = 4, .rows = 4};
  return {.n = 64, .wide = large ? 4 : 2, .stages = large ? 3 : 5, .rows = rows};
}

/** @brief Nanoseconds that a step of dsd, of a depth of 64, takes on an H100, about, whatever the
 *  tile: three products (`split`) wait for the tensor cores, TF32 for L2 (bench/NOTES.md). */
constexpr int tf32_dsd_step(bool split) { return split ? 2500 : 1700; }

/** @brief The tile of sdd for blocks of 16 and 32, rows of which are gathered like columns. Three
 *  products wait for the tensor cores, and so have smaller shares, more of the blocks of which are
 *  there; rounded to TF32 they wait for L2. */
constexpr Tf32Tile tf32_gathered_tile(bool split) {
  if (split) return {.n = 64, .wide = 2, .stages = 4, .split = true, .apart = true};
  return {.n = 128, .wide = 2, .stages = 4};
}
/** @brief Whether the sdd of these blocks gathers rows, on a GPU of this compute capability. */
constexpr bool tf32_gathers(int block) { return block == 16 || block == 32; }
constexpr bool tf32_gathers(int block, int capability) {
  return capability == 90 && tf32_gathers(block);
}

/** @brief Cycles that a step of an item of gathered rows takes at least, as measured on an H200 at
 *  4096^3: so many lines of 128 bytes, or shorter ones, come from L2, while the item is multiplied.
 *  @param[in] turned whether the rows of A have no depth along their lines */
constexpr int tf32_gathered_cycles(bool split, bool turned, int lines) {
  const int multiplied = split ? 2280 : turned ? 1950 : 1700, copied = lines * 16 / 5;
  return copied > multiplied ? copied : multiplied;
}
/** @brief What a block row or column of a share costs L2 a step, in lines of 128 bytes. Those of 64
 *  bytes take three quarters of the time of whole ones. */
constexpr int tf32_gathered_lines(int block, bool along_k) {
  return along_k || block >= 32 ? block : block * 3 / 2;
}

/** @brief Whether gathered rows that take `seconds` by the schedule are sooner done than `products`
 *  of mma.sync, whose rate does not depend on which blocks there are. */
constexpr bool tf32_gathering_pays(int block, bool split, bool b_along_k, double seconds,
                                   double products) {
  constexpr double start = 9e-6;  // what does not depend on the depth
  // Measured at 4096^3 beside the products at which both are about as fast.
  const double rounded = block == 16 ? 29e12 : b_along_k ? 46e12 : 42e12;
  const double rate = !split ? rounded : block == 16 ? 22e12 : 25e12;
  return start + seconds < products / rate;
}

/** @brief Whether dsd with `strips` block rows and `columns` columns of C, of all its batch, had
 *  better have broad tiles: there are enough of them for two a multiprocessor. */
constexpr bool broad_tiles_pay(int block, bool split, int64_t strips, int64_t columns,
                               int64_t multiprocessors) {
  return block == 64 && !split && strips * (columns / 512) >= 2 * multiprocessors;
}

/** @brief Whether so many items of pairs of block rows of 32, or of four, keep enough
 *  multiprocessors busy to be sooner done than what has smaller ones. */
constexpr bool strips_fill(int64_t items, int64_t multiprocessors) {
  return 4 * items >= 3 * multiprocessors;
}

/** @brief Strips of block rows, each taken so many times. */
struct StripCosts {
  int64_t columns = 0;  ///< of the unions of all strips
  int64_t longest = 0;  ///< columns of the longest union
  int64_t items = 0;    ///< strips, times tiles of columns of all C
  int64_t times = 0;
};
/** @brief Whether strips of four block rows of 32 are sooner done than of two, a step of which
 * takes up to .8 of the time (measured on an H100); unless the longest alone is more than a
 *  multiprocessor's share. */
constexpr bool quads_pay(const StripCosts& two, const StripCosts& four, int64_t multiprocessors) {
  return strips_fill(four.items, multiprocessors) && 100 * four.columns <= 80 * two.columns &&
         four.longest * multiprocessors <= four.columns * four.times;
}

/** @brief Whether f32 products with these blocks go to wgmma on a GPU of this compute capability:
 *  dsd of blocks of 32 and more, sdd of 64 and 128 (where sdd gathers rows, its schedule tells).
 *  Instructions for fewer columns than 32 are slower than mma.sync; and of a tile's 256 columns few
 *  would be used where there are few.
 *  @param[in] columns of C, for sdd those that the longest row keeps */
constexpr bool tf32_warpgroup_applies(int block, int64_t columns, int capability) {
  return capability == 90 && block >= 32 && columns >= 192;
}

}  // namespace bs::cuda

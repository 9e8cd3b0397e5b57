#pragma once
/** @file Tiles of the block-sparse products, by dtype and block: pure functions. */
#include <bs/lib/dtype.h>

#include <cstdint>

namespace bs::cuda {

/// Whether kernels, which count in 32 bits, can count so far.
constexpr bool fits_int(int64_t x) { return x <= INT32_MAX; }

/** @brief What products are made of: 16-bit numbers; f32 rounded to TF32; f32 as three products of
 *  TF32; f64. */
enum class Factors { half, tf32, split, f64 };
constexpr Factors factors_of(DType dtype, bool tf32) {
  return dtype == f64   ? Factors::f64
         : dtype != f32 ? Factors::half
         : tf32         ? Factors::tf32
                        : Factors::split;
}
constexpr int bytes_of(Factors factors) {
  return factors == Factors::half ? 2 : factors == Factors::f64 ? 8 : 4;
}

/** @brief How one CTA of an mma.sync kernel cuts its part of a product. */
struct BlockSparseTile {
  int rows = 0;                      ///< rows of the result a CTA computes
  int cols = 0;                      ///< columns of the result a CTA computes
  int depth = 0;                     ///< elements of the depth in one stage of shared memory
  int stages = 0;                    ///< stages in flight
  int warp_rows = 0, warp_cols = 0;  ///< how the tile is divided among the warps

  constexpr int threads() const { return 32 * warp_rows * warp_cols; }
  /// Of a CTA, for elements of `size` bytes: the stages, or the finished tile, each line of which
  /// is padded.
  constexpr int shared_bytes(int size) const {
    const int loading = stages * (rows + cols) * depth * size;
    const int by_rows = rows * (cols + 8) * size, by_cols = cols * (rows * size + 16);
    const int finished = by_rows > by_cols ? by_rows : by_cols;
    return loading > finished ? loading : finished;
  }
  constexpr bool operator==(const BlockSparseTile&) const = default;
};

/** @brief Columns of the widest tile for elements of `size` bytes and blocks of `block`; there are
 * others of each half of it down to 64. */
constexpr int widest_tile(int size, int block, bool split) {
  return size == 8 || (split && block > 32) || block > 64 ? 128 : 256;
}

/** @brief The tile for elements of `size` bytes and blocks of `block`: four warps, of 64 x 64 where
 * the registers hold that, on two CTAs a multiprocessor, one of which loads or stores while the
 * other multiplies. A block of 8 fills half of the 16 rows that one instruction of the tensor cores
 * has. f64 and `split` f32, which is three products of TF32, have sums for half as many rows. */
constexpr BlockSparseTile block_sparse_tile(int size, int block, bool split, int cols) {
  const int most = size == 8 || split ? 64 : 128;
  const int rows = block < 16 ? 16 : block > most ? most : block;
  const bool tall = rows * 2 >= cols;
  // Lines of 128 bytes a stage, or of 64 where stages of the others would be too few.
  const bool deep = cols < 256;
  return {.rows = rows,
          .cols = cols,
          .depth = (deep ? 128 : 64) / size,
          .stages = deep && rows + cols > 192 ? 3 : 4,
          .warp_rows = tall ? 2 : 1,
          .warp_cols = tall ? 2 : 4};
}

/** @brief How one CTA of a wgmma kernel cuts its part of a product: two warpgroups multiply, a
 * third one copies. */
struct WarpgroupTile {
  int cols = 0;          ///< columns of the result a warpgroup computes
  int stages = 0;        ///< of depth 64
  bool stacked = false;  ///< sdd: both warpgroups have the same columns, not the same rows

  static constexpr int threads = 384;
  /// Block rows that a strip of dsd has: 128 rows.
  static constexpr int dsd_rows(int block) { return 128 / block; }
  /// Block rows that a strip of sdd has, and block columns that a CTA of sdd gathers.
  constexpr int sdd_rows(int block) const { return (stacked ? 128 : 64) / block; }
  constexpr int sdd_cols(int block) const { return cols * (stacked ? 1 : 2) / block; }
  static constexpr int barriers = 1024;  ///< bytes kept for barriers and what goes with the stages
  static constexpr int staging = 2 * 64 * 128 * 2;
  constexpr int dsd_shared_bytes() const {
    return stages * 64 * 2 * (128 + cols) + staging + barriers + 1024;
  }
  constexpr int sdd_shared_bytes(int block) const {
    return stages * 64 * 2 * (sdd_rows(block) + sdd_cols(block)) * block + staging + barriers +
           1024;
  }
};

/** @brief The widest tile that `n` columns of C fill: more columns use each block of S longer. */
constexpr WarpgroupTile warpgroup_dsd_tile(int64_t n) {
  return {.cols = n <= 64 ? 64 : n <= 128 ? 128 : 256, .stages = 4};
}
/** @brief Which kernel of sdd. */
struct SddForm {
  bool narrow = false;    ///< its tile: fewer columns, for layouts with few items
  bool gathered = false;  ///< whether rows are gathered like columns: blocks up to 64
  bool operator==(const SddForm&) const = default;
};
/** @brief Three stages of two times 192 columns went faster than two stages of two times 256. */
constexpr WarpgroupTile warpgroup_sdd_tile(int block, SddForm form) {
  if (block == 128 || form.gathered)
    return {.cols = form.narrow ? 128 : 256, .stages = form.narrow ? 5 : 4, .stacked = true};
  return {.cols = form.narrow ? 128 : 192, .stages = form.narrow ? 4 : 3};
}

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
    const int lines = stages * (columns() + n * ranges()) + (split ? smalls() * n * ranges() : 0);
    return lines * 128 + barriers + 1024;
  }
  /// Places for the small terms of the narrow operand.
  constexpr int smalls() const { return apart ? 2 : stages; }
  /// Of sdd, what is gathered together: rows, and columns; an item has a range of as many for each
  /// warpgroup, where they are apart, else one.
  constexpr int ranges() const { return apart ? 2 : 1; }
  constexpr int gathered_columns() const { return columns() / ranges(); }
};

/** @brief The tile of dsd for a block of 32, 64 or 128, and of sdd for the last two. Two or four
 *  block rows of 32 are together, of which a stage multiplies those that have a block in its
 * column. `split` f32 has sums of a stage of their own, and so half as many. `large`: four block
 * rows of 32. */
constexpr Tf32Tile tf32_tile(int block, bool split, bool large) {
  const int rows = block == 32 ? 2 : 1;
  if (split) return {.n = 64, .wide = 2, .stages = 4, .split = true, .rows = rows};
  if (block == 128) return {.n = 128, .wide = 2, .stages = 4};
  if (block == 32 && large) return {.n = 128, .wide = 2, .stages = 4, .rows = 4};
  return {.n = 64, .wide = 2, .stages = 5, .rows = rows};
}

/** @brief The tile of sdd for blocks of 16 and 32, rows of which are gathered like columns. Three
 *  products wait for the tensor cores, and so have smaller ranges, more of the blocks of which are
 *  there; rounded to TF32 they wait for L2. */
constexpr Tf32Tile tf32_gathered_tile(bool split) {
  if (split) return {.n = 64, .wide = 2, .stages = 4, .split = true, .apart = true};
  return {.n = 128, .wide = 2, .stages = 4};
}
/** @brief Whether the sdd of these blocks gathers rows. */
constexpr bool tf32_gathers(int block) { return block == 16 || block == 32; }

}  // namespace bs::cuda

#pragma once
/** @file Tiles of the block-sparse products: pure functions of dtype and block. */
#include <bs/lib/dtype.h>

#include <bit>

namespace bs::cuda {

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

/** @brief Whether tiles of half the columns are sooner done: `tiles` and `halves` of them, of equal
 * length, by a GPU that works at `slots` at a time. A half one takes some more than half; and what
 * counts for many tiles is what they read, unless three products are made of it (`split`). */
constexpr bool half_tiles_pay(int64_t tiles, int64_t halves, int64_t slots, bool split) {
  return (split || tiles <= 2 * slots) &&
         100 * ((tiles + slots - 1) / slots) > 58 * ((halves + slots - 1) / slots);
}

/** @brief How dsd's tiles on mma.sync come along. */
struct TilePace {
  int resident = 0;  ///< at a time on a multiprocessor
  int step = 0;  ///< nanoseconds that one of them takes for a stage, or a block longer than that
};
/** @brief At about the rates measured on an H100 (bench/NOTES.md), which small blocks do not reach;
 *  a stage takes half a microsecond at least to come from L2.
 *  @param[in] split,tf32 of f32 (`size` 4), what its products are made of
 *  @param[in] tiles for each multiprocessor */
constexpr TilePace tile_pace(const BlockSparseTile& t, int size, int block, bool split, bool tf32,
                             int64_t tiles) {
  const int sums = t.rows * t.cols / t.threads() * (size == 8 ? 2 : 1);  // registers
  const int by_registers = 65536 / t.threads() / (sums + 64);
  const int by_memory = 227 * 1024 / (t.shared_bytes(size) + 2048);
  const int fitting = by_registers < by_memory ? by_registers : by_memory;
  const int resident = tiles < fitting ? static_cast<int>(tiles) : fitting;
  const double filled = block < 32 ? .5 : block == 32 ? .7 : 1;
  // Operations a nanosecond.
  const double rate = size == 8 ? 300 : split ? 380 : (tf32 ? 900 : 1900) * filled;
  const int depth = t.depth > block ? t.depth : block;
  const auto step = static_cast<int>(2.0 * t.rows * t.cols * depth * resident / rate);
  return {resident, step > 500 ? step : 500};
}

/** @brief Whether the wgmma kernels are for this dtype on a GPU of this compute capability (10 *
 * major + minor): wgmma came with 9.0 and is gone after it, so every other GPU takes mma.sync. */
constexpr bool warpgroup_applies(DType dtype, int capability) {
  return is_low_precision(dtype) && capability == 90;
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
/** @brief Nanoseconds that a step of dsd, of a depth of 64, takes while all multiprocessors of an
 *  H100 are at work (bench/NOTES.md): narrow tiles wait for the blocks of S, of which they read as
 *  many for fewer columns. */
constexpr int warpgroup_dsd_step(int block, int cols) {
  return cols == 256 ? 700 : (cols == 128 ? 500 : 460) + 1000 / block;
}
/** @brief Which kernel of sdd. */
struct SddForm {
  bool narrow = false;  ///< its tile: fewer columns, for layouts with few pieces of work
  int ctas = 1;         ///< of a cluster; 2: each may have half of an item's depth (blocks of 128)
  bool gathered = false;  ///< whether rows are gathered like columns: blocks up to 64, one CTA
  bool operator==(const SddForm&) const = default;
};
/** @brief Three stages of two times 192 columns went faster than two stages of two times 256. */
constexpr WarpgroupTile warpgroup_sdd_tile(int block, SddForm form) {
  if (block == 128 || form.gathered)
    return {.cols = form.narrow ? 128 : 256, .stages = form.narrow ? 5 : 4, .stacked = true};
  return {.cols = form.narrow ? 128 : 192, .stages = form.narrow ? 4 : 3};
}
/** @brief 0 to 3 for blocks of 16, 32, 64 and 128; of 8, -1. */
constexpr int size_rank(int block) { return std::countr_zero(static_cast<unsigned>(block)) - 4; }

/** @brief What products are made of: 16-bit numbers; f32, rounded to TF32; f32, as three of TF32.
 */
enum class Factors { half, tf32, split };

/** @brief The time of a sparse kernel over that of the dense product, about: 1 at a density, and
 * from there on in a line. */
struct Crossing {
  double meets, slope;
  constexpr double ratio(double density) const { return 1 + (density - meets) * slope; }
};

/** @brief For dsd and dds, without what either has copied, measured at 4096^3 and 8192^3
 * (bench/NOTES.md). The dense matrix of small 16-bit blocks has the columns along its lines. */
constexpr Crossing dsd_crossing(Factors factors, int block) {
  constexpr Crossing all[][5] = {{{.055, 10}, {.34, 1.4}, {.57, .8}, {.93, .8}, {.9, 1.1}},
                                 {{.07, 10}, {.16, 5.5}, {.45, 1.7}, {.6, 1.35}, {.76, 1.1}},
                                 {{.165, 5.4}, {.4, 2.5}, {.91, 0.9}, {.97, 1}, {.97, 1}}};
  return all[static_cast<int>(factors)][size_rank(block) + 1];
}

/** @brief For an sdd of which all of the dense product is stored, and then the blocks are picked
 * out: of f32, and of blocks of 8; without what either has copied. */
constexpr Crossing sdd_crossing(Factors factors, int block) {
  constexpr Crossing half = {.06, 9.4};
  constexpr Crossing all[][5] = {{{.08, 9}, {.335, 1.6}, {.56, 1.2}, {.435, 2.2}, {.77, 1.2}},
                                 {{.13, 8}, {.57, 1.3}, {.8, 1.1}, {.84, 1.3}, {.92, 1}}};
  return factors == Factors::half ? half
                                  : all[factors == Factors::split ? 1 : 0][size_rank(block) + 1];
}

/** @brief Whether a 16-bit sdd is faster by a dense product that stores only the blocks there are.
 * Both take as long at a density, measured at 4096^3 and 8192^3 with tiles for .97 of the rounds
 * of the multiprocessors that the dense product takes (bench/NOTES.md); the more rounds, the higher
 * the density, for what items of the sparse kernels leave idle at the end counts for less. Of 16
 * and 32 at 8192^3 it is .05 and .12 lower on a GPU that is cool: then the dense product is not
 * held up.
 *  @param[in] m,n extent of S */
constexpr bool dense_sdd_is_faster(int block, double density, int64_t m, int64_t n,
                                   int multiprocessors) {
  struct Meeting {
    double at_4096, at_8192;  // densities, times .97
  };
  constexpr Meeting meetings[] = {{0.39, 0.47}, {0.63, 0.62}, {0.83, 0.95}, {0.83, 0.96}};
  if (block < 16) return false;
  const Meeting meets = meetings[size_rank(block)];
  const int64_t tiles = ((m + 127) / 128) * ((n + 255) / 256);
  const int64_t rounds = (tiles + multiprocessors - 1) / multiprocessors;
  const double filled = static_cast<double>(tiles) / static_cast<double>(rounds * multiprocessors);
  const double quarters = 4 * 4096.0 * 4096.0 / static_cast<double>(m * n);  // 4 at 4096, 1 at 8192
  const double small = quarters > 4 ? 1 : quarters < 1 ? 0 : (quarters - 1) / 3;
  return density * filled > meets.at_8192 + small * (meets.at_4096 - meets.at_8192);
}

}  // namespace bs::cuda

#pragma once
/** @file What the work of the kernels of block-sparse products takes, in nanoseconds, by the
 * numbers of Gpu and by what was measured besides: which says a title in bench/notes. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/kernels/cuda/gpu/gpu.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bs::cuda {

inline int nanoseconds(double time) { return static_cast<int>(std::lround(time)); }

/** @brief To copy so many bytes. */
inline double copy_time(double bytes, const Gpu& gpu) {
  return gpu.launch + 2 * bytes / gpu.copy_rate;
}

/** @brief What lines of so many bytes take of L2, of the time of whole ones of 128 bytes that bring
 *  as much: half of what a line takes does not depend on its length ("What does L2 hand out to
 *  shared memory?", an H200). */
constexpr double short_lines(int bytes) { return bytes >= 128 ? 1 : .5 + 64. / bytes; }

/** @brief A step of an item of sdd on 16 bits, at least: so many lines of 128 bytes come from L2,
 *  while each warpgroup multiplies `cols` columns, 64 x 8 x 64 in 32 cycles. */
inline double sdd_step(int lines, int cols, const Gpu& gpu) {
  return std::max(lines * gpu.line(), cols * 4 / gpu.clock);
}
/** @brief A step of dsd on 16 bits, of a depth of 64. Narrow tiles wait for a third of the lines
 * that wide ones have besides ("Do cuts over the depth pay?", an H100). */
inline int warpgroup_dsd_step(int cols, const Gpu& gpu) {
  return nanoseconds((128 + cols + (256 - cols) / 3.) * gpu.line());
}

/** @brief What f32 on wgmma does not hide of the shorter one of reading and multiplying ("What does
 *  wgmma bring for blocks of 64 and 128?", "Does sdd gain by gathered rows?", an H200). */
inline constexpr double unhidden = .2;
/** @brief A step of f32 on wgmma, of a depth of 32, that reads so many lines.
 *  @param[in] filled how much of the tile is multiplied */
inline double tf32_step(const Tf32Tile& tile, double lines, const Gpu& gpu, double filled = 1) {
  const double rate = (tile.split ? gpu.split_rate() : gpu.tf32_rate()) / gpu.multiprocessors;
  const double reading = lines * gpu.line();
  const double multiplying = 32.0 * tile.n * filled * tile.columns() / rate;
  return std::max(multiplying, reading) + unhidden * std::min(multiplying, reading);
}
/** @brief Of kernels a step of which takes `step` and whose parts hand over `sums` bytes line by
 *  line through L2 ("Do cuts over the depth pay?", an H100). All sums have 64 MiB at most.
 *  @param[in] counters of each part: that of a warpgroup, or of a CTA */
inline SplitCosts split_costs(int step, int64_t sums, const Gpu& gpu, int counters = 2) {
  const int moved = nanoseconds(static_cast<double>(sums) / 128 * gpu.line());
  return {.step = step,
          .tile = 1400,
          .store = moved,
          .load = moved,
          .list = 3200,
          .most_slots = static_cast<int>(
              std::min((int64_t{64} << 20) / sums, int64_t{most_counters - 2} / counters))};
}
/** @brief Of sdd on wgmma: sums come back to registers that are nearly all taken, of TF32 to half,
 *  at the rate of copies: once, or as twice ("What do parts of sdd cost?", an H100). At the rate of
 *  lines records take up to 1.18 of the time. Parts that fill a quarter of L2 push operands out of
 *  it, and all of that counts ("How few numbers do plans take?", an H200). */
inline SplitCosts sdd_split_costs(int step, int64_t sums, Factors factors, const Gpu& gpu) {
  SplitCosts costs = split_costs(step, sums, gpu);
  const double copied = static_cast<double>(sums) * gpu.multiprocessors / gpu.copy_rate;
  costs.list = 0;
  costs.tile = costs.quiet_load = costs.load;
  costs.store = costs.load = nanoseconds(factors == Factors::tf32 ? copied : 2 * copied);
  costs.crowd = static_cast<int>(gpu.l2_bytes / 4 / sums);
  return costs;
}

/** @brief The pace of tiles on mma.sync. */
struct TilePace {
  int resident = 0;  ///< at a time on a multiprocessor
  int step = 0;      ///< that one of them takes for a stage, or a block longer than that
};
/** @brief What mma.sync reaches of the rate of dense products on wgmma. f32's three products and
 * f64 reach so much of that again ("What does mma.sync reach", an H100). */
inline constexpr double mma_share = 1 / 3.;

/** @param[in] tiles for each multiprocessor */
inline TilePace tile_pace(const BlockSparseTile& t, Factors factors, int block, int64_t tiles,
                          const Gpu& gpu) {
  const int size = bytes_of(factors), depth = std::max(t.depth, block);
  const int sums = t.rows * t.cols / t.threads() * (size == 8 ? 2 : 1);  // registers
  const auto by_registers = int64_t{65536} / t.threads() / (sums + 64);
  const auto by_memory = gpu.shared_bytes / (t.shared_bytes(size) + 2048);
  const int64_t resident =
      std::min({std::max(by_registers, int64_t{1}), std::max(by_memory, int64_t{1}), tiles});
  const double products = mma_share * gpu.clock *
                          (factors == Factors::half   ? gpu.half_products
                           : factors == Factors::tf32 ? gpu.tf32_products
                                                      : mma_share * gpu.tf32_products);
  const double multiplying = t.rows * t.cols * depth / products;
  const int stages = depth / t.depth;
  const int line = t.depth * size;  // bytes
  const double lines = (t.rows + t.cols) * stages * line / 128. * short_lines(line);
  const double step = static_cast<double>(resident) * std::max(multiplying, lines * gpu.line());
  return {static_cast<int>(resident), nanoseconds(step)};
}

/** @brief The order of dsd is by columns where strips that run at once read a row of B this often.
 *  It takes .77 to 1.10 of the time by length from 2.5 reads on, and .92 to 1.18 at 2.1 to 2.4;
 *  bands take 1.02 to 1.08 ("In which order does work go?", an H100). */
inline constexpr double most_reads = 2.5;
/** @brief Strips of dsd follow each other over all columns where two runs of strips that run at
 *  once read so much more than one does, and strips have so much in common. Bands of 16384 at .05
 *  take 735 us for 968 by it. Without the first number `fixed` of 16384 takes 1.40 of the time,
 *  without the second one zipf 1.25 (the same). */
inline constexpr double least_fresh = .25, least_common = 1.5;

/** @brief What cuBLAS takes longer for TF32 where neither operand has the depth along its lines:
 * 520 us, not 322 ("How many block rows of 32 should share", an H100). */
inline constexpr double more_across = .6;

/** @brief What mma.sync takes for so many multiply-adds while its widest tiles fill the GPU. */
inline double tiled_time(Factors factors, int block, double products, const Gpu& gpu) {
  const bool split = factors == Factors::split;
  const int size = bytes_of(factors);
  const BlockSparseTile wide =
      block_sparse_tile(size, block, split, widest_tile(size, block, split));
  const TilePace pace = tile_pace(wide, factors, block, most_split_items, gpu);
  const int rows = std::min(wide.rows, block), depth = std::max(wide.depth, block);
  return pace.step * products / (1.0 * depth * rows * wide.cols * pace.resident) /
         gpu.multiprocessors;
}

}  // namespace bs::cuda

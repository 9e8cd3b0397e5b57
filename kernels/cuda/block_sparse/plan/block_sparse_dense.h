#pragma once
/** @file Which block-sparse products are sooner done as dense ones: pure functions. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/lib/integers.h>

#include <cstdint>

namespace bs::cuda {

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
  const int64_t rounds = ceil_div(tiles, multiprocessors);
  const double filled = static_cast<double>(tiles) / static_cast<double>(rounds * multiprocessors);
  const double quarters = 4 * 4096.0 * 4096.0 / static_cast<double>(m * n);  // 4 at 4096, 1 at 8192
  const double small = quarters > 4 ? 1 : quarters < 1 ? 0 : (quarters - 1) / 3;
  return density * filled > meets.at_8192 + small * (meets.at_4096 - meets.at_8192);
}

/** @brief Whether dsd goes through a dense copy of the sparse matrix: of single matrices of 16 bits
 *  and f32 on Hopper, whose crossover with the sparse kernels is known, and where a dense matrix
 * and the copies of f32 that its product takes are a sixteenth of the memory at most, and a quarter
 * of what is free. */
bool dense_dsd_pays(const Layout& layout, const DsdShape& shape, const Gpu& gpu);
/** @brief Whether it can, without an epilogue; and how sdd can, else Path::tiled. */
bool dense_dsd_possible(const Layout& layout, const DsdShape& shape, const Gpu& gpu);
Path dense_sdd_possible(const Layout& layout, const SddShape& shape, const Gpu& gpu);
/** @brief Whether sdd stores the blocks of a dense product (Path::blocks), or picks them out of all
 * of one (Path::dense); else Path::tiled. */
Path dense_sdd_path(const Layout& layout, const SddShape& shape, const Gpu& gpu);

}  // namespace bs::cuda

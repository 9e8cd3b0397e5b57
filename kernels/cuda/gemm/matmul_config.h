#pragma once
/** @file Which kernel multiplies two dense matrices: the vendor's library's, or ours. Pure
 *  functions of the problem and the GPU. */
#include <bs/lib/dtype.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace bs::cuda {

/** @brief A product [batch, m, k] x [batch, k, n]. */
struct MatmulProblem {
  DType dtype = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t a_matrices = 1, b_matrices = 1;  ///< that are not repetitions of one
  bool lines_aligned =
      false;  ///< every line of a, b and the result begins at a multiple of 128 bytes
};

enum class MatmulPath : uint8_t {
  library,  ///< cuBLAS
  tiles,    ///< GemmOperation: 16 bits, warpgroups on tiles of 128 x 256
  parts,    ///< GemmOperation: f32 split into two tf32 numbers each, three products of warpgroups
};

/** @brief A tile of an f32 product in parts, with the seconds that it takes. Measured on an H100,
 * see bench/NOTES.md, "3xTF32 with both operands split at once". */
struct PartsTile {
  int rows, cols;
  int stages;
  int cluster;  ///< tiles down the rows that share what they load
  double end;   ///< seconds besides steps
  double step;  ///< of a depth of 32
};
/** @brief For many tiles, for few, and for some more than there are multiprocessors. */
inline constexpr std::array<PartsTile, 3> parts_tiles{{
    {.rows = 128, .cols = 128, .stages = 3, .cluster = 2, .end = 2.5e-6, .step = .98e-6},
    {.rows = 128, .cols = 64, .stages = 4, .cluster = 1, .end = 2e-6, .step = .53e-6},
    {.rows = 192, .cols = 128, .stages = 2, .cluster = 1, .end = 17e-6, .step = 1.22e-6},
}};

/** @brief Seconds of an f32 product in parts: 12 bytes an element to split the operands, then waves
 *  of tiles. */
constexpr double seconds_in_parts(const MatmulProblem& p, const PartsTile& tile,
                                  int multiprocessors) {
  constexpr double launches = 4e-6, bytes_per_second = 3e12;
  const int64_t elements = p.k * (p.a_matrices * p.m + p.b_matrices * p.n);
  const int64_t clusters =
      p.batch * ceil_div(p.m, tile.rows * tile.cluster) * ceil_div(p.n, tile.cols);
  const int64_t waves = ceil_div(clusters, multiprocessors / tile.cluster);
  return launches + 12 * static_cast<double>(elements) / bytes_per_second +
         static_cast<double>(waves) *
             (tile.end + tile.step * static_cast<double>(ceil_div(p.k, 32)));
}
/** @brief Which of the tiles is the soonest done. */
constexpr size_t parts_tile(const MatmulProblem& p, int multiprocessors) {
  const auto seconds = [&](const PartsTile& tile) {
    return seconds_in_parts(p, tile, multiprocessors);
  };
  return static_cast<size_t>(std::ranges::min_element(parts_tiles, {}, seconds) -
                             parts_tiles.begin());
}
/** @brief In that tile. */
constexpr double seconds_in_parts(const MatmulProblem& p, int multiprocessors) {
  return seconds_in_parts(p, parts_tiles[parts_tile(p, multiprocessors)], multiprocessors);
}

/** @brief Seconds of an f32 product of the library: its rate at large sizes, which flatters it at
 *  small ones. */
constexpr double seconds_of_library(const MatmulProblem& p) {
  constexpr double flops_per_second = 51e12, launch = 4e-6;
  return launch +
         2 * static_cast<double>(p.batch * p.m * p.n) * static_cast<double>(p.k) / flops_per_second;
}

/** @brief Whether a 16-bit product is large enough for our tiles to gain on the library: 3 to 5 %
 * at 8192^3, where at 4096^3 (four waves of tiles) they lose 1 %. Tiles must fill the matrix. */
constexpr bool fills_tiles(const MatmulProblem& p, int multiprocessors) {
  const int64_t tiles = p.batch * ceil_div(p.m, 128) * ceil_div(p.n, 256);
  return p.lines_aligned && tiles >= int64_t{8} * multiprocessors &&
         tiles * 128 * 256 <= p.batch * p.m * p.n / 32 * 33;
}

/** @brief Bytes that an f32 product in parts takes besides its operands: twice theirs. */
constexpr int64_t bytes_in_parts(const MatmulProblem& p) {
  return 8 * p.k * (p.a_matrices * p.m + p.b_matrices * p.n);
}

/** @brief Memory of a GPU, in bytes. */
struct MatmulMemory {
  int64_t total = int64_t{80} << 30;
  int64_t free = total;  ///< that tensors may take now, as far as known
};
/** @brief Whether the choice depends on how much is free; else nobody needs to ask. */
constexpr bool asks_for_memory(const MatmulProblem& p, int64_t total) {
  return p.dtype == DType::f32 && bytes_in_parts(p) > total / 64;
}

/** @brief The faster path, on Hopper; elsewhere the library. Parts only where they save a tenth,
 *  and take a quarter of the GPU's memory at most, and half of what is free. f64 is the library's.
 */
constexpr MatmulPath choose_matmul(const MatmulProblem& p, int capability, int multiprocessors,
                                   const MatmulMemory& memory = {}) {
  constexpr int64_t most = int64_t{1} << 30;  // of an extent, in GemmOperation
  if (capability != 90 || multiprocessors < 2 || p.m > most || p.n > most || p.k > most)
    return MatmulPath::library;
  if (p.dtype == DType::f16 || p.dtype == DType::bf16)
    return fills_tiles(p, multiprocessors) ? MatmulPath::tiles : MatmulPath::library;
  const bool pays =
      p.dtype == DType::f32 && seconds_in_parts(p, multiprocessors) < .9 * seconds_of_library(p);
  const int64_t room = std::min(memory.total / 4, memory.free / 2);
  return pays && bytes_in_parts(p) <= room ? MatmulPath::parts : MatmulPath::library;
}

}  // namespace bs::cuda

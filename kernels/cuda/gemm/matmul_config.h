#pragma once
/** @file Which kernel multiplies two dense matrices: the vendor's library's, or ours. Pure
 *  functions of the problem and the GPU. */
#include <bs/kernels/cuda/gpu/gpu.h>
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

/** @brief A tile of an f32 product in parts, with what its time is reckoned from. Measured on an
 *  H100, see bench/notes/gemm.md, "Does it pay to split both operands of 3xTF32 at once?" */
struct PartsTile {
  int rows, cols;
  int stages;
  int cluster;  ///< tiles down the rows that share what they load
  double end;   ///< nanoseconds besides steps
  double pace;  ///< of the steps, by the GPU's dense products of TF32

  /// Nanoseconds of a depth of 32.
  constexpr double step(const Gpu& gpu) const {
    return 3.0 * 32 * rows * cols / (pace * gpu.tf32_products * gpu.clock);
  }
};
/** @brief For many tiles, for few, and for some more than there are multiprocessors. */
inline constexpr std::array<PartsTile, 3> parts_tiles{{
    {.rows = 128, .cols = 128, .stages = 3, .cluster = 2, .end = 2500, .pace = 1.02},
    {.rows = 128, .cols = 64, .stages = 4, .cluster = 1, .end = 2000, .pace = .94},
    {.rows = 192, .cols = 128, .stages = 2, .cluster = 1, .end = 17000, .pace = 1.23},
}};

/** @brief Nanoseconds of an f32 product in parts: 12 bytes an element to split the operands, then
 *  waves of tiles. */
constexpr double time_in_parts(const MatmulProblem& p, const PartsTile& tile, const Gpu& gpu) {
  const int64_t elements = p.k * (p.a_matrices * p.m + p.b_matrices * p.n);
  const int64_t clusters =
      p.batch * ceil_div(p.m, tile.rows * tile.cluster) * ceil_div(p.n, tile.cols);
  const int64_t waves = ceil_div(clusters, gpu.multiprocessors / tile.cluster);
  return gpu.launch + 12 * static_cast<double>(elements) / gpu.copy_rate +
         static_cast<double>(waves) *
             (tile.end + tile.step(gpu) * static_cast<double>(ceil_div(p.k, 32)));
}
/** @brief Which of the tiles is the soonest done. */
constexpr size_t parts_tile(const MatmulProblem& p, const Gpu& gpu) {
  const auto time = [&](const PartsTile& tile) { return time_in_parts(p, tile, gpu); };
  return static_cast<size_t>(std::ranges::min_element(parts_tiles, {}, time) - parts_tiles.begin());
}
/** @brief In that tile. */
constexpr double time_in_parts(const MatmulProblem& p, const Gpu& gpu) {
  return time_in_parts(p, parts_tiles[parts_tile(p, gpu)], gpu);
}

/** @brief Nanoseconds of an f32 product of the library: its rate at large sizes, which flatters it
 *  at small ones. */
constexpr double time_of_library(const MatmulProblem& p, const Gpu& gpu) {
  constexpr double products = 114;  // a cycle of a multiprocessor, which has 128 lanes
  return gpu.launch + static_cast<double>(p.batch * p.m * p.n) * static_cast<double>(p.k) /
                          (products * gpu.clock * gpu.multiprocessors);
}

/** @brief Whether a 16-bit product is large enough for our tiles to gain on the library: 3 to 5 %
 * at 8192^3, where at 4096^3 (four waves of tiles) they lose 1 %. Tiles must fill the matrix. */
constexpr bool fills_tiles(const MatmulProblem& p, const Gpu& gpu) {
  const int64_t tiles = p.batch * ceil_div(p.m, 128) * ceil_div(p.n, 256);
  return p.lines_aligned && tiles >= int64_t{8} * gpu.multiprocessors &&
         tiles * 128 * 256 <= p.batch * p.m * p.n / 32 * 33;
}

/** @brief Bytes that an f32 product in parts takes besides its operands: twice theirs. */
constexpr int64_t bytes_in_parts(const MatmulProblem& p) {
  return 8 * p.k * (p.a_matrices * p.m + p.b_matrices * p.n);
}

/** @brief Whether the choice depends on how much memory is free; else nobody needs to ask. */
constexpr bool asks_for_memory(const MatmulProblem& p, const Gpu& gpu) {
  return p.dtype == DType::f32 && bytes_in_parts(p) > gpu.memory_bytes / 64;
}

/** @brief The faster path, on Hopper; elsewhere the library. Parts only where they save a tenth,
 *  and take a quarter of the GPU's memory at most, and half of what is free. f64 is the library's.
 */
constexpr MatmulPath choose_matmul(const MatmulProblem& p, const Gpu& gpu) {
  constexpr int64_t most = int64_t{1} << 30;  // of an extent, in GemmOperation
  if (gpu.capability != 90 || gpu.multiprocessors < 2 || p.m > most || p.n > most || p.k > most)
    return MatmulPath::library;
  if (p.dtype == DType::f16 || p.dtype == DType::bf16)
    return fills_tiles(p, gpu) ? MatmulPath::tiles : MatmulPath::library;
  const bool pays = p.dtype == DType::f32 && time_in_parts(p, gpu) < .9 * time_of_library(p, gpu);
  const int64_t room = std::min(gpu.memory_bytes / 4, gpu.free_bytes / 2);
  return pays && bytes_in_parts(p) <= room ? MatmulPath::parts : MatmulPath::library;
}

}  // namespace bs::cuda

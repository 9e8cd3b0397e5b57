#pragma once
/** @file Tiles of the block-sparse products: pure functions of dtype and block. */
#include <bs/lib/dtype.h>

namespace bs::cuda {

/** @brief How one CTA cuts its part of a product. */
struct BlockSparseTile {
  int rows = 0;                      ///< rows of the result a CTA computes
  int cols = 0;                      ///< columns of the result a CTA computes
  int depth = 0;                     ///< elements of the depth in one stage of shared memory
  int stages = 0;                    ///< stages in flight
  int warp_rows = 0, warp_cols = 0;  ///< how the tile is divided among the warps

  constexpr int threads() const { return 32 * warp_rows * warp_cols; }
  /// Of a CTA, for elements of `size` bytes; `along_k`: neighbours along the depth are side by
  /// side. The stages, with each line padded against bank conflicts, or the finished tile.
  constexpr int shared_bytes(int size, bool a_along_k, bool b_along_k) const {
    const auto operand = [&](int side, bool along_k) {
      const int padding = size == 4 && !along_k ? 32 : 16;
      return along_k ? side * (depth * size + padding) : depth * (side * size + padding);
    };
    const int loading = stages * (operand(rows, a_along_k) + operand(cols, b_along_k));
    const int by_rows = rows * (cols * size + 16), by_cols = cols * (rows * size + 16);
    const int finished = by_rows > by_cols ? by_rows : by_cols;
    return loading > finished ? loading : finished;
  }
  constexpr bool operator==(const BlockSparseTile&) const = default;
};

/** @brief The tile for elements of `size` bytes and blocks of `block`. A block of 8 fills half of
 * the 16 rows that one instruction of the tensor cores has; wide elements split a block of 128. */
constexpr BlockSparseTile block_sparse_tile(int size, int block) {
  const int most = size > 2 ? 64 : 128;
  const int rows = block < 16 ? 16 : block > most ? most : block;
  return {.rows = rows,
          .cols = size > 2 ? 64 : 128,
          .depth = 64 / size,
          .stages = 4,
          .warp_rows = rows / 32 > 1 ? rows / 32 : 1,
          .warp_cols = rows >= 64 ? 2 : 4};
}

}  // namespace bs::cuda

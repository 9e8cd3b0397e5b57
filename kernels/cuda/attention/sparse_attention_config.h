#pragma once
/** @file Tiles of fused attention: pure functions of the element's size, head_dim and block. */

namespace bs::cuda {

enum class AttentionPass { forward, query_gradient, key_gradient };

/** @brief Tiles of one kernel. A CTA keeps `rows` rows and meets the columns `cols` at a time. */
struct SparseAttentionTile {
  int cols = 0;
  int ctas = 0;    ///< CTAs an SM should hold: bounds the registers
  int unroll = 0;  ///< steps of a product that may overlap, which takes registers
};

/** @brief Rows of a CTA: those that one instruction of the tensor cores has, for each of 4 warps.
 */
constexpr int sparse_attention_rows(int size) { return size == 8 ? 32 : 64; }

constexpr int sparse_attention_threads = 128;

/** @brief head_dim is padded with zeros to this. */
constexpr int sparse_attention_dim(int size, int head_dim) {
  const int step = size == 2 ? 32 : 64;
  return (head_dim + step - 1) / step * step;
}

/** @brief Whether tiles of rows and of columns each lie within a block, so that no score of a tile
 * is missing. Only 16-bit types have kernels of their own for it. */
constexpr bool sparse_attention_whole(int size, int block) { return size == 2 && block >= 64; }

/** @brief The tile for elements of `size` bytes, chosen so that nothing spills: the gradients of
 * keys and values hold two sums for each element of a row, and get the narrowest columns. */
constexpr SparseAttentionTile sparse_attention_tile(AttentionPass pass, int size, int dim,
                                                    bool whole) {
  const bool key = pass == AttentionPass::key_gradient;
  const int unroll = !key ? 32 : size == 2 && dim == 64 ? 2 : 4;
  if (size == 8) return {.cols = key ? 16 : 32, .ctas = 1, .unroll = unroll};
  if (size == 4) return {.cols = key && dim > 64 ? 16 : 32, .ctas = 1, .unroll = unroll};
  const bool three = dim <= 32 || (dim == 64 && (whole || pass != AttentionPass::query_gradient));
  return {.cols = key ? 32 : 64, .ctas = three ? 3 : 2, .unroll = unroll};
}

/** @brief Dynamic shared memory of a CTA: its own rows, two stages of columns, with 16 bytes of
 * padding a line, and the list of blocks. */
constexpr int sparse_attention_shared_bytes(AttentionPass pass, int size, int dim, int cols) {
  constexpr int list = 2640;
  const int line = dim * size + 16;
  const int kept = pass == AttentionPass::forward ? 1 : 2;
  const int numbers = pass == AttentionPass::key_gradient ? 2 * (size == 8 ? 8 : 4) : 0;
  return kept * sparse_attention_rows(size) * line + 2 * cols * (2 * line + numbers) + list;
}

}  // namespace bs::cuda

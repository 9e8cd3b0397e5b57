#pragma once
/** @file Tiles of fused attention: pure functions of the element's size, head_dim, block and the
 * shared memory there is. */

namespace bs::cuda {

/** @brief Gradients of keys and of values are one pass, or, where a row has too many of them for
 * the registers, one each. */
enum class AttentionPass {
  forward,
  query_gradient,
  key_value_gradient,
  key_gradient,
  value_gradient
};

/** @brief Tiles of one kernel. A CTA keeps `rows` rows and meets the columns `cols` at a time. */
struct SparseAttentionTile {
  int cols = 0;    ///< 0: no tile fits, each row is a warp's
  int ctas = 0;    ///< CTAs an SM should hold: bounds the registers
  int unroll = 0;  ///< steps of a product that may overlap, which takes registers
  int stages = 2;  ///< tiles of columns in shared memory
};

/** @brief Rows of a CTA: those that one instruction of the tensor cores has, for each of 4 warps.
 */
constexpr int sparse_attention_rows(int size) { return size == 8 ? 32 : 64; }

constexpr int sparse_attention_threads = 128;

/** @brief head_dim or value_dim, the larger of them, is padded with zeros to this. */
constexpr int sparse_attention_dim(int size, int head_dim) {
  const int step = size == 2 && head_dim <= 128 ? 32 : 64;
  return (head_dim + step - 1) / step * step;
}

/** @brief Whether tiles of rows and of columns each lie within a block, so that no score of a tile
 * is missing. Only 16-bit types have kernels of their own for it, and only plain problems. */
constexpr bool sparse_attention_whole(int size, int block, bool plain) {
  return size == 2 && block >= 64 && plain;
}

/** @brief Whether gradients of keys and values are two passes. */
constexpr bool sparse_attention_splits(int dim) { return dim > 128; }

constexpr bool is_key_pass(AttentionPass pass) {
  return pass != AttentionPass::forward && pass != AttentionPass::query_gradient;
}

/** @brief Dynamic shared memory of a CTA: its own rows, stages of columns, with 16 bytes of padding
 * a line, and the list of blocks. */
constexpr int sparse_attention_shared_bytes(AttentionPass pass, int size, int dim,
                                            const SparseAttentionTile& tile) {
  constexpr int list = 2640;
  const int line = dim * size + 16;
  const int kept = pass == AttentionPass::forward ? 1 : 2;
  const int numbers = is_key_pass(pass) ? 2 * (size == 8 ? 8 : 4) : 0;
  return kept * sparse_attention_rows(size) * line +
         tile.stages * tile.cols * (2 * line + numbers) + list;
}

/** @brief The tile for elements of `size` bytes where shared memory sets no bound, chosen so that
 * nothing spills: gradients of keys and values hold two sums for each element of a row, and get the
 * narrowest columns. */
constexpr SparseAttentionTile sparse_attention_widest(AttentionPass pass, int size, int dim,
                                                      bool whole, bool plain) {
  const bool key = is_key_pass(pass), query = pass == AttentionPass::query_gradient;
  if (!plain) {  // scores of many terms take registers of their own
    if (size > 2 && dim > 128) return {};
    const bool narrow = size != 2 || key || dim > 128;
    return {.cols = narrow ? 16 : 32, .ctas = 1, .unroll = 4};
  }
  if (dim > 192 && key && size == 4) return {};
  if (dim > 128) return {.cols = size == 2 && !key ? 32 : 16, .ctas = 1, .unroll = 4};
  const bool scarce = query && (size == 4 ? dim > 64 : size == 2 && dim == 64 && whole);
  const int unroll = scarce ? (size == 2 ? 4 : 8) : !key ? 32 : size == 2 && dim == 64 ? 2 : 4;
  if (size == 8) return {.cols = key ? 16 : 32, .ctas = 1, .unroll = unroll};
  if (size == 4) return {.cols = key && dim > 64 ? 16 : 32, .ctas = 1, .unroll = unroll};
  const bool three = dim <= 32 || (dim == 64 && (whole || pass != AttentionPass::query_gradient));
  return {.cols = key ? 32 : 64, .ctas = three ? 3 : 2, .unroll = unroll};
}

/** @brief The same within `shared_bytes` a CTA: fewer columns, then a single stage, then no tile.
 */
constexpr SparseAttentionTile sparse_attention_tile(AttentionPass pass, int size, int dim,
                                                    bool whole, bool plain, int shared_bytes) {
  SparseAttentionTile tile = sparse_attention_widest(pass, size, dim, whole, plain);
  const auto fits = [&] {
    return sparse_attention_shared_bytes(pass, size, dim, tile) <= shared_bytes;
  };
  while (!fits() && tile.cols > 16) {
    tile.cols /= 2;
    if (size == 4 && tile.unroll > 8) tile.unroll = 8;  // or ptxas spills for sm_120
  }
  if (!fits()) tile.stages = 1;
  return fits() ? tile : SparseAttentionTile{};
}

}  // namespace bs::cuda

#pragma once
/** @file Patterns that follow scores: each query block keeps its best key blocks. So choose native
 * sparse attention (Yuan et al. 2025) and the mixture of block attention (Lu et al. 2025). */
#include <bs/kernels/dispatch.h>
#include <bs/lib/layout.h>

namespace bs {

struct BlockTopkOptions {
  int block = 32;        ///< elements a side of a block
  bool causal = false;   ///< a row keeps blocks with column <= row only
  int first_blocks = 0;  ///< the first columns are kept before all others: NSA's initial block
  int local_blocks = 0;  ///< so are the row's own column and those just before it
};

/** @brief The layout in which each block row keeps the `k` columns with the highest scores.
 *
 *  A row has exactly min(k, columns that it may see) blocks, those of first_blocks and local_blocks
 *  among them. So the number of blocks follows from the extents, and on CUDA the host waits for
 *  nothing. A layout of every step costs a small part of its attention. Equal scores: the lower
 *  column is kept. NaN is below -infinity. No gradient flows to the scores.
 *  @param[in] scores floating [rows, cols] for one head, [heads, rows, cols], or [batch, heads,
 *  rows, cols]. The last gives batch * heads heads, each entry its own, as sparse_attention takes
 *  them. Compared in f32.
 *  @throws Error unless k >= 1, and for another rank or block size */
LayoutPtr block_topk(const Tensor& scores, int k, const BlockTopkOptions& options = {});

namespace detail {
/** @brief Blocks of the first `rows` rows of a head, where a row keeps `k` of `cols` columns. */
constexpr int64_t topk_blocks(int64_t rows, int64_t cols, int64_t k, bool causal) {
  const int64_t most = k < cols ? k : cols;
  if (!causal) return rows * most;
  const int64_t growing = rows < most ? rows : most;
  return growing * (growing + 1) / 2 + (rows - growing) * most;
}
}  // namespace detail

/// Dense floating scores [heads, rows, cols]; fills in the arrays by row.
BS_BACKENDS(void block_topk(const Tensor& scores, int k, const BlockTopkOptions& options,
                            const LayoutArrays& arrays, Stream stream))

}  // namespace bs

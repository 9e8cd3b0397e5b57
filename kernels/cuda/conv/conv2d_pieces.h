#pragma once
/** @file What tiles of a convolution read where its filters are blocks: lists that depend on a
 *  layout and a problem alone. */
#include <bs/kernels/conv2d_description.h>
#include <bs/kernels/cuda/conv/conv2d_plan.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/conv/conv2d_params.cuh>

#include <vector>

namespace bs::cuda {

/** @brief Steps of the depth, column by column of tiles; of the gradient of blocks the columns of
 *  each tile, in pieces of 64. */
struct Conv2dPieces {
  int tiles = 0;                 ///< columns of tiles over all phases; of the gradient tiles
  std::vector<int32_t> offsets;  ///< [tiles + 1], into the pieces; of the gradient empty
  std::vector<device::Conv2dPiece> pieces;
};

/** @brief The lists for blocks of 64 or 128 channels.
 *  @param[in] layout [K, R S C] of one head
 *  @param[in] tile its columns, or for the gradient of blocks its rows, divide a block's side or
 *  are it
 *  Cost: O(blocks). */
Conv2dPieces conv2d_pieces(const Conv2dProblem& problem, Conv2dKind kind, const Layout& layout,
                           const Conv2dTile& tile);

/** @brief The product of which they are lists; `steps` are those of a mean column of tiles. */
Conv2dProduct conv2d_product(const Conv2dProblem& problem, Conv2dKind kind,
                             const Conv2dPieces& pieces, const Conv2dTile& tile);

/** @brief The fastest tile by estimate, with its lists; its path is `direct` where none can: but on
 *  Hopper, for blocks below 64, and for elements other than of 16 bits. */
struct BlockSparseConv2dPlan {
  Conv2dPlan plan;
  Conv2dPieces pieces;
};
BlockSparseConv2dPlan plan_block_sparse_conv2d(const Conv2dProblem& problem, Conv2dKind kind,
                                               DType dtype, const Layout& layout, const Gpu& gpu);

}  // namespace bs::cuda

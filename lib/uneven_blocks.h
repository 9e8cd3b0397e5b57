#pragma once
/** @file Patterns whose blocks have another height than width. */
#include <bs/lib/layout.h>

namespace bs {

/** @brief The layout of a mask whose blocks have `block_rows` rows and `block_cols` columns: each
 *  is cut into squares of the smaller side. What is computed is the same; lists and maps get
 *  max / min entries a block, and kernels are those of the smaller side.
 *  @param[in] mask [rows, cols] (one head) or [heads, rows, cols] of blocks, any dtype, any device
 *  @param[in] block_rows,block_cols elements a side: 8, 16, 32, 64 or 128
 *  @return a layout of [rows * block_rows, cols * block_cols] elements
 *  @throws Error for another rank or side, or more than 2^31 - 1 squares. */
LayoutPtr layout_of_uneven_blocks(const Tensor& mask, int block_rows, int block_cols);

}  // namespace bs

#pragma once
/** @file The number of the block at each place of a layout. */
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/lib/layout.h>

namespace bs::cuda {

/** @brief Which block is where: for kernels that come by all places of a matrix. */
struct BlockNumbers {
  Tensor table;  ///< i32 [heads, rows, cols] on the device; -1 where there is no block
  MadeOn made;
};

/** @brief Made on the device once for a layout and kept with it, 4 bytes a place; for use on
 *  `stream`. The host waits for nothing. */
Kept<BlockNumbers> block_numbers(const Layout& layout, Stream stream);

}  // namespace bs::cuda

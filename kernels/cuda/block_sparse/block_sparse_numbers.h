#pragma once
/** @file The number of the block at each place of a layout. */
#include <bs/lib/cuda/upload.h>
#include <bs/lib/layout.h>

namespace bs::cuda {

/** @brief Which block is where: for kernels that come by all places of a matrix. */
struct BlockNumbers {
  Tensor table;  ///< i32 [heads, rows, cols] on the device; -1 where there is no block
  Milestone made;
};

/** @brief Made on the device once for a layout and kept with it, 4 bytes a place; for the device's
 *  current stream. The host waits for nothing. */
const BlockNumbers& block_numbers(const Layout& layout, Device device);

}  // namespace bs::cuda

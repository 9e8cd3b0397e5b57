#pragma once
/** @file In which order, and by which parts, the tiles of dsd on mma.sync are taken. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/block_sparse/block_sparse_problem.cuh>

#include <cstdint>
#include <vector>

namespace bs::cuda {

device::BlockOrder order_of(const LayoutView& layout, bool transposed);

/** @brief Lines of op(S), those with the most blocks first, whatever the head. */
struct LineOrder {
  std::vector<int32_t> lines;
  Tensor on_device;  ///< i32
  Milestone made;
};
/** @brief Made once for a layout, and kept with it; for the device's current stream. */
const LineOrder& line_order_of(const Layout& layout, bool transposed, Device device);

/** @brief Steps that the tiles of dsd take, in the order of their numbers: the tiles over the rows
 *  of a block, over the lines in their order, over the columns, over the batch.
 *  @param[in] of_step blocks that a step has */
std::vector<int32_t> tile_steps(const DsdProblem& p, const std::vector<int32_t>& lines, int of_step,
                                const device::TileGrid& grid);

/** @brief What splitting tiles depends on besides the layout and the product. */
struct TileSplitting {
  int of_step = 1;   ///< blocks that a step has
  int cols = 0;      ///< of a tile
  int factors = 0;   ///< less than 4: f64, f32, TF32 or 16 bits
  int resident = 1;  ///< tiles at a time on a multiprocessor
  SplitCosts costs = {};
};
/** @brief The tiles that are cut over the depth, or begin before others; none where they had better
 *  be taken as they are numbered. Made once for a layout and for what the steps depend on besides,
 *  and kept with it. */
const DevicePieces& split_tiles(const DsdProblem& p, const LineOrder& order,
                                const device::TileGrid& grid, const TileSplitting& how,
                                Stream stream);

}  // namespace bs::cuda

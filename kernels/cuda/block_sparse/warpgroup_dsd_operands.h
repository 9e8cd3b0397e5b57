#pragma once
/** @file What the warpgroup kernels of dsd, for 16 bits and for f32, are told alike. */
#include <bs/kernels/block_sparse_matmul_problem.h>
#include <bs/kernels/cuda/block_sparse/device_lists.h>
#include <bs/kernels/cuda/block_sparse/warpgroup_operands.h>

namespace bs::cuda {

/** @brief How a kernel cuts C and B. */
struct DsdTiling {
  int depth = 0;  ///< of a box of B
  int slabs = 1;  ///< of a block's rows, each an item
};

/** @brief Fills in all of `params` but where C and what the epilogue reads lie.
 *  @return the items */
int64_t describe_dsd(const Tensor& b, const DsdProblem& p, const DsdWork& work,
                     const DeviceStrips& strips, const DenseMap& values, const DsdTiling& tiling,
                     device::WarpgroupDsdParams& params);

}  // namespace bs::cuda

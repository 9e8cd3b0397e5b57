#pragma once
// What a launch of the f32 kernels of wgmma tells them: that of the 16-bit ones, with maps for
// elements of f32, and where the result lies, which leaves by ordinary stores.
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

namespace bs::cuda::device {

/// Columns of a product that a kernel reduces to one number a row by itself; to one number a column
/// it reduces all rows that a CTA has.
inline constexpr int tf32_reduced_side = 32;

/// Strips are single block rows. `tiles`: column tiles times the slabs of a block's rows.
struct WarpgroupTf32DsdParams : WarpgroupDsdParams {
  float* result;
  float* beside;           ///< what the epilogue stores first beside C, if it is laid out like C
  long long result_step;   ///< from one row of C to the next, or from one column
  long long result_batch;  ///< from one C to the next
  bool whole_quads;        ///< rows of C fall into vectors of 16 bytes
};

/// `work`: columns gathered of a strip, as many as a CTA takes at most; the same for every slab of
/// the rows of a block.
struct WarpgroupTf32SddParams : WarpgroupSddParams {
  float* result;
  float* beside;
};

}  // namespace bs::cuda::device

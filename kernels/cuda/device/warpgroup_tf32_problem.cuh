#pragma once
// What a launch of the f32 kernels of wgmma tells them: that of the 16-bit ones, with maps for
// elements of f32, and where the result lies, which leaves by ordinary stores.
#include <bs/kernels/cuda/device/warpgroup_problem.cuh>

namespace bs::cuda::device {

/// Strips are single block rows. `tiles`: column tiles times the parts that a block's rows are in.
struct WarpgroupTf32DsdParams : WarpgroupDsdParams {
  float* result;
  long long result_step;   ///< from one row of C to the next, or from one column
  long long result_batch;  ///< from one C to the next
  bool whole_quads;        ///< rows of C fall into pieces of 16 bytes
};

/// `work`: columns gathered of a strip, as many as a CTA takes at most; the same for every part of
/// the rows of a block.
struct WarpgroupTf32SddParams : WarpgroupSddParams {
  float* result;
};

}  // namespace bs::cuda::device

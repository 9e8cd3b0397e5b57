#pragma once
/** @file Which items sdd of f32 with blocks of 16 and 32 has on wgmma, and how long they take. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_schedule.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Whether the kernels for blocks of 16 and 32 are taken where they would not pay, too, so
 *  that tests meet them at small sizes: BS_GATHERED_PRODUCTS is set. */
bool tf32_gathers_always();

/** @brief What it depends on besides the layout. */
struct Tf32SddExtent {
  int64_t batch = 0;
  int64_t steps = 0;  ///< of an item, of depth 32
  bool split = false;
  bool a_along_k = true, b_along_k = true;  ///< neighbours along the depth are side by side
  bool fits() const { return batch < 1 << 25 && steps < 1 << 25; }
};

/** @brief Items of gathered rows; `strips.shares` are [items, shares of one], of which the last one
 *  may have no columns. */
struct Tf32SddPlan {
  GatheredStrips strips = {};
  WorkPieces split = {};
  double seconds = 0;  ///< until all are done
};
/** @brief A pure function of its arguments.
 *  @param[in] memory_rate as DeviceProperties has it */
Tf32SddPlan plan_tf32_sdd(const Layout& layout, const Tf32SddExtent& extent, int multiprocessors,
                          double memory_rate);

/** @brief A plan on the device. */
struct Tf32SddSchedule {
  bool pays = false;  ///< else there is nothing more: mma.sync is sooner done
  DeviceShares shares;
  device::StripList list{};
  int works = 0;  ///< items of one S of the batch
  DevicePieces split;
  Milestone made;
};
/** @brief Made once for a layout and extent, and kept with it; for the device's current stream. */
const Tf32SddSchedule& schedule_tf32_sdd(const Layout& layout, const Tf32SddExtent& extent,
                                         Device device);

}  // namespace bs::cuda

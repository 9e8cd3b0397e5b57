#pragma once
/** @file How the items of the warpgroup kernels are shared out among the multiprocessors: pure
 *  functions of how long the items are. Lengths are in steps, stages of a depth of 64. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_dsd_order.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_work_split.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief Keys of schedules among all that is derived from a layout.
 *  @param[in] kind less than 8, of what else they differ in */
uint64_t schedule_key(bool sampled, bool transposed, int kind, int64_t repeats, int64_t steps,
                      Device device);

/** @brief Pieces on the device. */
struct DevicePieces {
  Tensor packed;  ///< i32
  const device::WorkPiece* pieces = nullptr;
  int count = 0;  ///< 0: items are taken whole
  int slots = 0;

  DevicePieces() = default;
  DevicePieces(const WorkPieces& work, Device device);
};

/** @brief How a launch of dsd shares out its items. */
struct DsdSchedule {
  device::WorkOrder order{};
  DevicePieces split;
  Milestone made;
};
/** @brief Steps that the items take, in the order of their numbers: strips of a rank (those of all
 *  heads that are as many places from their head's longest one) over the tiles of columns. */
std::vector<int32_t> dsd_items(const BlockSparseStrips& strips, int block, const DsdExtent& extent);
/** @brief What its schedule has among all that is derived from a layout; another for each extent
 *  that another schedule is for.
 *  @param[in] by_head of few items of several heads, where it matters which head each has */
uint64_t dsd_key(const DsdExtent& extent, bool by_head, Device device);
/** @brief Made once for a layout and extent, and kept with it; for the device's current stream. */
const DsdSchedule& schedule_dsd(const Layout& layout, const BlockSparseStrips& strips,
                                const DsdExtent& extent, Device device);

/** @brief What CTAs of sdd do, and the gathered strips that it is of, if any, on the device. */
struct DeviceShares {
  Tensor packed;  ///< i32
  const device::SddShare* work = nullptr;

  DeviceShares() = default;
  DeviceShares(const std::vector<device::SddShare>& shares, const GatheredStrips& strips,
               Device device);
  /** @brief The list of the gathered strips, else as `list` has it.
   *  @param[in] rows block rows of a head */
  device::StripList gathered(device::StripList list, int rows) const;

 private:
  size_t rows_ = 0, cols_ = 0, blocks_ = 0;  // where in `packed` they begin
};

/** @brief How a launch of sdd shares out its work. */
struct SddSchedule {
  SddForm form;
  bool copies = false;  ///< the operand of the strips, with the depth along its lines
  DeviceShares shares;
  device::StripList list{};
  Tensor columns;  ///< that the list is of, if not those of the shares
  int works = 0;   ///< [works, ctas]
  DevicePieces split;
  Milestone made;
};
/** @brief What it depends on besides the layout. */
struct SddExtent {
  int64_t batch = 0;
  int64_t steps = 0;        ///< of an item
  int64_t columns = 0;      ///< of B (rows of A where transposed), which the layout tells
  bool transposed = false;  ///< strips of columns
  bool by_depth = true;     ///< whether clusters may cut items by the depth: without epilogue
  bool along_k = true;      ///< whether the operand of the strips has the depth along its lines
  int64_t copied = 0;       ///< else, elements of a copy of it that has; 0: there can be none
  bool fits() const { return batch < 1 << 25 && steps < 1 << 25; }
};
/** @brief Made once for a layout and extent, and kept with it; for the device's current stream. */
const SddSchedule& schedule_sdd(const Layout& layout, const BlockSparseStrips& strips,
                                const SddExtent& extent, Device device);

}  // namespace bs::cuda

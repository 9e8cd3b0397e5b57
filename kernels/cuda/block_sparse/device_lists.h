#pragma once
/** @file What plans list, on a device: made once for a layout and kept with it. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_plan.h>
#include <bs/lib/cuda/made_on.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/tensor.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

#include <functional>

namespace bs::cuda {

/** @brief Pieces of items. */
struct DevicePieces {
  Tensor packed;  ///< i32
  const device::WorkPiece* pieces = nullptr;
  int count = 0;  ///< 0: items are taken whole
  int slots = 0;

  DevicePieces() = default;
  DevicePieces(const WorkPieces& work, Device device);
};

/** @brief Strips with the columns of each and the blocks of its rows there, which the device lists;
 *  the host does not wait for it. */
struct DeviceStrips {
  Tensor lists, columns;     ///< i32
  device::StripList list{};  ///< into these
  bool gathered = false;
  MadeOn made;

  DeviceStrips(const Layout& layout, const Strips& strips, Device device);
  /** @brief Of a layout that the host does not have: all of it is made on the stream's device.
   *  @param[in] shape of neighbours, whose columns are sorted and at most most_filled_cols */
  DeviceStrips(const Layout& layout, const StripShape& shape, Stream stream);
};
/** @brief The same, made once for a layout; for use on `stream`. The host does not fetch a layout
 *  that it does not have, but for strips that are gathered or have pairs. */
Kept<DeviceStrips> device_strips(const Layout& layout, const StripShape& shape, Stream stream);

/** @brief Items of sdd, and the gathered strips that they are of, if any. */
struct DeviceRanges {
  Tensor packed;  ///< i32
  const device::SddRange* work = nullptr;

  DeviceRanges() = default;
  DeviceRanges(const std::vector<device::SddRange>& ranges, const GatheredStrips& strips,
               Device device);
  /** @brief The list of the gathered strips.
   *  @param[in] rows block rows of a head */
  device::StripList gathered(int rows) const;

 private:
  size_t rows_ = 0, cols_ = 0, blocks_ = 0;  // where in `packed` they begin
};

/** @brief Lines of op(S) in the order of sorted_lines(). */
struct DeviceLines {
  Tensor lines;  ///< i32
  MadeOn made;
};
Kept<DeviceLines> device_lines(const Layout& layout, bool transposed, Stream stream);

/** @brief A plan of dsd with its lists. */
struct DsdWork {
  DsdPlan plan;
  int64_t planned_n = 0;  ///< columns that it was made for
  DevicePieces split = {};
  MadeOn made = {};
};
/** @param[in] time what such work takes, in nanoseconds: called with BS_TUNE to choose a plan */
Kept<DsdWork> dsd_work(const Layout& layout, const DsdShape& shape, Stream stream,
                       const std::function<double(const DsdWork&)>& time);

/** @brief A plan of sdd with its lists; the host's copies of those are gone. */
struct SddWork {
  SddPlan plan;
  int items = 0;
  DevicePieces split = {};
  DeviceRanges ranges = {};
  MadeOn made = {};
};
Kept<SddWork> sdd_work(const Layout& layout, const SddShape& shape, Stream stream,
                       const std::function<double(const SddWork&)>& time);

}  // namespace bs::cuda

#pragma once
/** @file What the warpgroup kernels walk: a layout in strips of block rows. */
#include <bs/lib/cuda/upload.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/warpgroup_problem.cuh>

#include <vector>

namespace bs::cuda {

/** @brief Strips of `rows` consecutive block rows of one head, and for each the union of the
 * columns of its rows with the number of every row's block there. O(nnz) memory and time. The host
 * counts the columns, since memory and schedules go by their number; the lists themselves are made
 * on the device, which the host does not wait for. */
struct BlockSparseStrips {
  Tensor lists, columns;                ///< i32, on the device
  device::StripList list;               ///< into it
  std::vector<int32_t> offsets, order;  ///< those of the list, on the host
  std::vector<int32_t> shared;          ///< of each strip, where paired: columns of both strips
  Milestone made;

  /** @param[in] transposed strips of block columns of the layout, for op(S) = S^T
   *  @param[in] rows block rows of a strip
   *  @param[in] paired whether strips 2 i and 2 i + 1 of a head each begin with the columns that
   *  both have, in the same order; the others follow, sorted too */
  BlockSparseStrips(const Layout& layout, bool transposed, int rows, Device device,
                    bool paired = false);

  /** @brief Union columns of strip `strip` of all heads. */
  int length(int strip) const {
    const auto s = static_cast<size_t>(strip);
    return offsets[s + 1] - offsets[s];
  }
};

/** @brief The same, made once for a layout and kept with it; for the device's current stream. */
const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, Device device,
                                   bool paired = false);

}  // namespace bs::cuda

#pragma once
/** @file The work list of the warpgroup kernels: a layout in strips of block rows. */
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/warpgroup_problem.cuh>

namespace bs::cuda {

/** @brief Strips of `rows` consecutive block rows of one head, and for each the union of the
 * columns of its rows with the number of every row's block there. O(nnz) memory and time. */
struct BlockSparseStrips {
  Tensor packed;           ///< i32, on the device
  device::StripList list;  ///< into it
  const int* work = nullptr;
  int works = 0;  ///< pieces of at most `cols` union columns of a strip

  /** @param[in] transposed strips of block columns of the layout, for op(S) = S^T
   *  @param[in] rows block rows of a strip
   *  @param[in] cols union columns of a piece of work; 0: none are listed */
  BlockSparseStrips(const Layout& layout, bool transposed, int rows, int cols, Device device);
};

/** @brief The same, made once for a layout and kept with it. */
const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, int cols,
                                   Device device);

}  // namespace bs::cuda

#pragma once
/** @file The columns and blocks of strips, written on the device. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/lib/layout.h>
#include <bs/kernels/cuda/device/block_sparse/warpgroup_problem.cuh>

#include <cstdint>

namespace bs::cuda {

/** @brief Strips of up to this many columns can be filled on the device. */
inline constexpr int most_filled_cols = 90112;

/** @brief The twin of list_columns().
 *  @param[in] v the layout on the device
 *  @param[in] list of the strips, with what is not written here
 *  @param[out] cols,blocks as in device::StripList */
void fill_strips(const LayoutView& v, const StripShape& shape, const device::StripList& list,
                 int32_t* cols, int32_t* blocks, Stream stream);

/** @brief Whether count_strips() and fill_strips() can write those of a layout. */
inline bool counts_strips(const Layout& layout, bool transposed) {
  return (transposed ? layout.rows() : layout.cols()) <= most_filled_cols &&
         layout.heads() <= 65535;  // lines of a grid
}
/** @brief The twin of make_strips() for strips of neighbours whose columns are sorted: the host
 * does not wait.
 *  @param[out] offsets,order as Strips has them, of `strips` strips a head */
void count_strips(const LayoutView& v, const StripShape& shape, int strips, int32_t* offsets,
                  int32_t* order, Stream stream);

}  // namespace bs::cuda

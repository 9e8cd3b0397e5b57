#pragma once
/** @file The columns and blocks of strips, written on the device. */
#include <bs/lib/layout.h>

namespace bs::cuda {

/** @brief Strips of up to this many columns can be filled on the device. */
inline constexpr int most_filled_cols = 90112;

/** @brief Which strips: see BlockSparseStrips. */
struct StripShape {
  bool transposed;
  int rows, strips;            ///< of a strip, of a head
  const int32_t* listed = {};  ///< device::StripList::rows, on the device
};

/** @brief The twin of what BlockSparseStrips does on the host.
 *  @param[in] v the layout on the device
 *  @param[in] offsets [heads * strips + 1] of the strips' columns, on the device
 *  @param[out] cols,blocks as in device::StripList */
void fill_strips(const LayoutView& v, const StripShape& shape, const int32_t* offsets,
                 int32_t* cols, int32_t* blocks, Stream stream);

}  // namespace bs::cuda

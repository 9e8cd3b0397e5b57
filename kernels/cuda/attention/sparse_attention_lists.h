#pragma once
/** @file The lists of tiles of a pattern that was made on a device, written there. */
#include <bs/kernels/cuda/attention/sparse_attention_tiles.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Whether list_tiles() can write them: for a CTA of two warpgroups that meets 128 keys at a
 *  time, up to half a million keys of blocks of 16, and as many heads as a grid has lines. */
inline bool lists_tiles(const AttentionTiling& tiling, const Layout& layout) {
  return tiling.groups == 2 && tiling.cols == 128 && layout.block() >= 16 &&
         layout.cols() <= 32768 && layout.heads() <= 65535;
}

/** @brief The twin of attention_tile_lists() for a layout on a device; the host does not wait. Its
 *  records have the same pieces in another order, and there is room for one a block of the layout.
 *  @param[in] v the layout on the device
 *  @param[out] records [nnz, pieces + 2] words; what no item has is not written
 *  @param[out] items [heads * tiles] of AttentionTileLists::Item */
void list_tiles(const LayoutView& v, const AttentionTiling& tiling, int tiles, int32_t* records,
                int32_t* items, Stream stream);

}  // namespace bs::cuda

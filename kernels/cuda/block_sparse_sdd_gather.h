#pragma once
/** @file Items of sdd whose block rows are gathered like their columns: those that have most
 *  columns in common, wherever in the matrix they lie. A pure function of the layout. */
#include <bs/kernels/cuda/block_sparse_sdd_items.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel that gathers rows walks, on the host: a strip for each item, of rows of its
 *  own. Each block of the layout is in one strip; a strip may lack others of its rows and columns,
 *  which are computed and thrown away. */
struct GatheredStrips {
  int strip_rows = 0;                         ///< block rows of a strip
  std::vector<device::SddShare> shares = {};  ///< the items
  std::vector<int32_t> rows = {};    ///< [items, strip_rows], over all heads; of one head an item
  std::vector<int32_t> cols = {};    ///< [entries], block column
  std::vector<int32_t> blocks = {};  ///< [entries, strip_rows], block number or -1
};

/** @brief Takes blocks together item by item: the row that has most left, then those rows that have
 *  most columns in common with it and each other, then the columns that most of them have. Takes
 *  .5 us of a core an item (blocks of 64) to 7 us (16).
 *  @param[in] transposed rows of the transpose
 *  @param[in] form its tile */
GatheredStrips gather_sdd(const Layout& layout, bool transposed, SddForm form);

}  // namespace bs::cuda

#pragma once
/** @file Items of sdd whose block rows are gathered like their columns: those that have most
 *  columns in common, wherever in the matrix they lie. A pure function of the layout. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>
#include <bs/lib/layout.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief What a kernel that gathers rows walks, on the host: a strip for each item, of rows of its
 *  own. Each block of the layout is in one strip; a strip may lack others of its rows and columns,
 *  which are computed and thrown away. */
struct GatheredStrips {
  int strip_rows = 0;                         ///< block rows of a strip
  std::vector<device::SddRange> ranges = {};  ///< the items
  std::vector<int32_t> rows = {};    ///< [items, strip_rows], over all heads; of one head an item
  std::vector<int32_t> cols = {};    ///< [entries], block column
  std::vector<int32_t> blocks = {};  ///< [entries, strip_rows], block number or -1
};

/** @brief Of a window: as many columns as there can be. */
inline constexpr int widest_window = std::numeric_limits<int>::max();
/** @brief Columns of the windows that items are gathered from. Items that run at once read no more
 *  of B than one or two windows have. A window is as wide as can be, unless items would wait for
 *  the GPU's memory: narrow ones take .77 to .96 of the time at 8192^3 then.
 *  @param[in] rows,columns of the matrix
 *  @param[in] step nanoseconds of a stage of an item, of 128 bytes of each row and column */
int sdd_window(int64_t rows, int64_t columns, int block, double step, const Gpu& gpu);

/** @brief Takes blocks together item by item: the row that has most left, then those rows that have
 *  most columns in common with it and each other, then the columns that most of them have. Takes
 *  .2 us of a core an item (blocks of 64) to 2 us (16, density .4).
 *  @param[in] transposed rows of the transpose
 *  @param[in] form its tile
 *  @param[in] window as sdd_window has it */
GatheredStrips gather_sdd(const Layout& layout, bool transposed, SddForm form,
                          int window = widest_window);
/** @brief The same for items of so many rows, 8 block rows at most, and columns. */
GatheredStrips gather_sdd(const Layout& layout, bool transposed, int rows, int columns,
                          int window = widest_window);

/** @brief What items may cost together. One of n columns costs max(least, first + n * column) and
 *  `end`. */
struct GatherLimit {
  double first = 0, column = 0, least = 0, end = 0;
  double most = 0;
  int64_t items = 0;  ///< as many items may cost anything

  double cost(int columns) const { return std::max(least, first + columns * column) + end; }
};
/** @brief The same within some limits: gives up, with nothing, once no limit can be kept, were the
 *  rest as cheap as can be. Items that cost less than 1e-9 too much may be gathered. */
std::optional<GatheredStrips> gather_sdd(const Layout& layout, bool transposed, SddForm form,
                                         int window, std::span<const GatherLimit> limits);

/** @brief About how many items there would be of `cols` columns, half of what these have. Each
 * keeps its fuller columns, and the rest fill others as well. Within a tenth of what gather_sdd
 * makes of random layouts. */
double expect_items(const GatheredStrips& wide, int cols);

}  // namespace bs::cuda

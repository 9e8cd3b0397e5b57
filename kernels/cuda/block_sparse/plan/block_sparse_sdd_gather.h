#pragma once
/** @file Items of sdd whose block rows are gathered like their columns: those that have most
 *  columns in common, wherever in the matrix they lie. A pure function of the layout. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_items.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
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

/** @brief Items that were chosen. */
struct GatheredItems {
  std::vector<device::SddRange> ranges = {};
  /// Lists what they have, while the layout is there: for the plan that is taken in the end.
  std::function<GatheredStrips()> list = {};
};

/** @brief Of a window: as many columns as there can be. */
inline constexpr int widest_window = std::numeric_limits<int>::max();
/** @brief Columns of the windows that items are gathered from. Items that run at once read no more
 *  of B than one or two windows have. A window is as wide as can be, unless items would wait for
 *  the GPU's memory: narrow ones take .77 to .96 of the time at 8192^3 then.
 *  @param[in] rows,columns of the matrix
 *  @param[in] step nanoseconds of a stage of an item, of 128 bytes of each row and column */
int sdd_window(int64_t rows, int64_t columns, int block, double step, const Gpu& gpu);

/** @brief What items may read of L2 a step, in lines: `first` each, `column` for each of its
 * columns.
 */
struct GatherLimit {
  double first = 0, column = 0;
  double most = std::numeric_limits<double>::infinity();  ///< all together

  double of(int columns) const { return first + columns * column; }
};
/** @brief Takes blocks together item by item: the row that has most left, then those that have most
 *  of the columns that an item of the rows before them would have: the ones that most of these
 * have. Takes .2 us of a core an item (blocks of 64) to .7 us (16, density .4).
 *  @param[in] transposed rows of the transpose
 *  @param[in] rows,columns of an item, 8 block rows at most
 *  @param[in] window as sdd_window has it
 *  @return nothing once the limit can't be kept, were the rest in items without a hole */
std::optional<GatheredItems> gather_sdd(const Layout& layout, bool transposed, int rows,
                                        int columns, int window = widest_window,
                                        const GatherLimit& limit = {});

}  // namespace bs::cuda

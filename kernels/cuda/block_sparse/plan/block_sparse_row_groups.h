#pragma once
/** @file Which block rows dsd takes into one strip. Pure functions of the layout. */
#include <bs/lib/kept.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief The rows of op(S), whatever order they are stored in. */
struct LayoutRows {
  const int32_t* offsets;  ///< of all heads
  const int32_t* col;
  const int32_t* number;  ///< null: blocks are numbered in this order
  int heads, rows, cols;

  LayoutRows(const LayoutView& v, bool transposed)
      : offsets(transposed ? v.col_offsets : v.row_offsets),
        col(transposed ? v.transposed_row : v.col_of),
        number(transposed ? v.transposed : nullptr),
        heads(v.heads),
        rows(transposed ? v.cols : v.rows),
        cols(transposed ? v.rows : v.cols) {}
};

/** @brief The block rows of each head in strips of `side`, each row in one. What a strip reads, and
 *  the stages that it takes, are as many as the columns that any of its rows has: its union. */
struct RowGroups {
  int side = 0;
  std::vector<int32_t> rows = {};  ///< [heads * strips, side], in the head; its number of rows
                                   ///< where a strip has no more. Empty: neighbours do as well
  int64_t entries = 0;             ///< columns of the unions of all strips
  int64_t neighbours = 0;          ///< the same of strips of neighbours, which is not less
  int64_t longest = 0;             ///< columns of the longest union
};

/** @brief Takes rows together that have most columns in common, wherever they lie within a height
 *  of 8192. A strip begins with the longest row left. Each next one shares most of the union so
 * far. Takes 2 us (density .02) to 13 us (.4) of a core a strip with blocks of 16 at 8192 x 8192.
 *  @param[in] transposed rows of the transpose */
RowGroups group_rows(const Layout& layout, bool transposed, int side);

/** @brief The same, made once for a layout and kept with it. */
Kept<RowGroups> row_groups_of(const Layout& layout, bool transposed, int side);

/** @brief What a product does with the strips. */
struct StripUse {
  int block = 0;
  /// Neighbours along the rows of C are side by side, so that gathered rows are written in lines as
  /// short as a block, where others are in whole ones of 64.
  bool by_columns = false;
  int64_t times = 1;  ///< that each strip is taken: tiles of columns of all C of its head
  int workers = 1;    ///< who share the strips
};
/** @brief What strips of gathered rows take, in columns of unions: entries, and what short lines
 * cost besides. */
int64_t gathered_columns(const RowGroups& groups, const StripUse& use);
/** @brief Whether strips of gathered rows take less time than neighbours'. Since the longest rows
 * come together, it takes .75 at most where the longest strip alone is more than four times a
 * worker's share: it is cut then into as many parts as there can be. */
bool groups_pay(const RowGroups& groups, const StripUse& use);

}  // namespace bs::cuda

#pragma once
/** @file What the warpgroup kernels walk: a layout in strips of block rows. Pure functions. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_bits.h>
#include <bs/lib/kept.h>
#include <bs/lib/layout.h>

#include <cstdint>
#include <vector>

namespace bs::cuda {

/** @brief Of columns, a bit each from an even one on: those of which both of a pair, 2c and 2c + 1,
 *  are there. */
template <class Word>
constexpr Word pairs_of(Word columns) {
  const Word first = columns & columns >> 1 & static_cast<Word>(~Word{0} / 3);
  return first | first << 1;
}

/** @brief The order of a union's columns where pairs stay together: taken two at a time, each two
 *  are a pair or two of the other columns, both spread evenly over the list and sorted among
 *  themselves. What would be half of two is the last. */
struct PairOrder {
  int64_t pairs = 0, others = 0;  ///< how many twos are pairs, and how many are not

  /** @param[in] in_pairs,alone columns of pairs, and all others */
  constexpr PairOrder(int in_pairs, int alone) : pairs(in_pairs / 2), others((alone + 1) / 2) {}

  /// Where a column goes before which so many others of pairs come.
  constexpr int of_pair(int rank) const {
    const int64_t two = rank / 2;
    return static_cast<int>(2 * (two + two * others / pairs)) + rank % 2;
  }
  /// Where one goes before which so many others come that are not of pairs.
  constexpr int of_other(int rank) const {
    const int64_t two = rank / 2;
    return static_cast<int>(2 * (two + ((two + 1) * pairs + others - 1) / others)) + rank % 2;
  }
};

/** @brief How a layout is cut into strips. */
struct StripShape {
  bool transposed = false;  ///< strips of block columns of the layout, for op(S) = S^T
  int side = 1;             ///< block rows of a strip
  bool gathered = false;    ///< rows that are alike, see alike_rows(); else neighbours
  bool pairs = false;       ///< of columns stay together, see PairOrder
  bool operator==(const StripShape&) const = default;
};

/** @brief Block rows of each head in strips of `side`: those that have most columns in common,
 *  wherever they lie within a height of 8192. A strip begins with the longest row left; each next
 *  one is the first of those that share most of the union so far.
 *  @return [heads * strips, side], in the head; its number of rows where a strip has no more */
std::vector<int32_t> alike_rows(const Layout& layout, bool transposed, int side);

/** @brief Strips of block rows of one head each, and for each the union of the columns of its rows.
 *  Columns are sorted, or in PairOrder. O(nnz) memory and time. */
struct Strips {
  StripShape shape;
  int heads = 0, count = 0;           ///< strips of a head
  std::vector<int32_t> rows = {};     ///< of gathered strips, as alike_rows() has them
  std::vector<int32_t> offsets = {};  ///< [heads * count + 1], into the union columns
  std::vector<int32_t> order = {};    ///< [heads * count], those of each head, the longest first

  /** @brief Union columns of strip `strip` of all heads, and of all of them. */
  int length(int strip) const {
    const auto s = static_cast<size_t>(strip);
    return offsets[s + 1] - offsets[s];
  }
  int64_t columns() const { return offsets.back(); }
};
Strips make_strips(const Layout& layout, const StripShape& shape);
/** @brief The same, made once for a layout and kept with it. */
Kept<Strips> strips_of(const Layout& layout, const StripShape& shape);

/** @brief Fills in the columns of every strip, and the blocks of its rows there.
 *  @param[out] cols [entries] block columns
 *  @param[out] blocks [entries, side] block numbers, -1 where a row lacks the column */
void list_columns(const Layout& layout, const Strips& strips, int32_t* cols, int32_t* blocks);

/** @brief How often strips read a column of op(S) that are taken so many at once, in their order
 *  from place `first` of each head on: the mean, over the columns that any of them has, of as many
 *  of these runs as have it. O(nnz) time. */
double column_reads(const Layout& layout, const Strips& strips, int first, int at_once);

}  // namespace bs::cuda

#pragma once
/** @file The columns and blocks of strips, written on the device. */
#include <bs/lib/layout.h>

#include <cstdint>

namespace bs::cuda {

/** @brief Strips of up to this many columns can be filled on the device. */
inline constexpr int most_filled_cols = 90112;

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

/** @brief Which strips: see BlockSparseStrips. */
struct StripShape {
  bool transposed, pairs;
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

#pragma once
/** @file Radix sorts of keys and what comes with them, compiled once. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Keys of 2, 4 or 8 bytes, and their 32-bit positions. */
struct KeyedPositions {
  Tensor keys, positions;

  /// Room for keys of such a size with these positions.
  static KeyedPositions of(const Tensor& positions, int key_bytes);
  int64_t count() const { return positions.numel(); }
  int key_bytes() const { return static_cast<int>(static_cast<int64_t>(keys.bytes()) / count()); }
};

/** @brief Sorts by the bits [from, to) of the keys; what is equal there keeps its order. */
void sort_pairs(const KeyedPositions& pairs, const KeyedPositions& sorted, int from, int to,
                Stream stream);

/** @brief All elements of a dense x, at least one, in order, their positions in `order` [count]
 *  i32. Keys that differ are of values that do. */
KeyedPositions sort_all(const Tensor& x, const Tensor& order, bool descending, Stream stream);

}  // namespace bs::cuda

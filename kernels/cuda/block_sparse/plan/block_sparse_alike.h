#pragma once
/** @file Chooses block rows that have most columns in common: strips and items of such rows read
 *  less of the other operand. */
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_bits.h>
#include <bs/lib/integers.h>
#include <bs/lib/threads.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bs::cuda {

/** @brief Threads that compare the rows of so many windows. Fewer blocks than this take a core .5
 * ms at most: waking threads may take as long. */
inline int team_for(size_t windows, int64_t blocks) {
  constexpr int64_t least_shared = 8192;
  return windows > 1 && blocks >= least_shared ? threads() : 1;
}

/** @brief Cuts rows or columns into windows of `most` at most, each about as large:
 *  f(begin, end). */
template <class F>
void for_windows(int size, int most, const F& f) {
  const int64_t windows = ceil_div(size, most);
  for (int64_t i = 0; i < windows; ++i)
    f(static_cast<int>(size * i / windows), static_cast<int>(size * (i + 1) / windows));
}

/** @brief 64 x 64 bits: number j of word i. */
using BitSquare = std::array<uint64_t, 64>;
/** @brief Exchanges i and j: of halves, of their halves, and so on. */
inline void transpose(BitSquare& bits) {
  uint64_t low = ~uint64_t{0} >> 32;
  for (size_t half = 32; half != 0; half /= 2, low ^= low << half)
    for (size_t begin = 0; begin < 64; begin += 2 * half)
      for (size_t i = begin; i < begin + half; ++i) {
        const uint64_t differ = (bits[i] >> half ^ bits[i + half]) & low;
        bits[i] ^= differ << half;
        bits[i + half] ^= differ;
      }
}

/** @brief `most` block rows at most, as the set of rows that each column has. */
template <int most>
class AlikeRows {
 public:
  using Rows = BitSet<most>;
  using Counts = BitCounts<most>;

  explicit AlikeRows(int cols)
      : cols_(cols), columns_(static_cast<size_t>(round_up(cols + 1, 8))) {}

  /** @brief A column that no row has. Lists of columns are of whole eights; this one may end them.
   */
  int none() const { return cols_; }
  /** @brief Puts the blocks of so many rows, once.
   *  @param[in] bits bits(row, word): which of the columns from 64 * word on a row has; asked for
   *             words in their order */
  template <class Bits>
  void put(int rows, const Bits& bits) {
    for (int row = 0; row < rows; row += 64) {
      uint32_t* const ranks = ranks_.data() + row;
      for (int col = 0; col < cols_; col += 64) {
        BitSquare square{};
        for (int i = 0; i < std::min(rows - row, 64); ++i) {
          const uint64_t own = bits(row + i, col / 64);
          square[static_cast<size_t>(i)] = own;
          ranks[i] += most * static_cast<uint32_t>(std::popcount(own));
        }
        transpose(square);
        Rows* const columns = columns_.data() + col;
        for (int i = 0; i < std::min(cols_ - col, 64); ++i)
          columns[i].words[row / 64] = square[static_cast<size_t>(i)];
      }
    }
    for (int row = 0; row < rows; ++row) {
      uint32_t& rank = ranks_[static_cast<size_t>(row)];
      if (rank == 0) continue;
      rank += static_cast<uint32_t>(most - 1 - row);
      left_.put(row);
    }
  }
  /** @brief Takes the blocks of some rows out of some columns; shorten() tells how many. */
  void take(const Rows& rows, std::span<const uint16_t> cols) {
    for (const uint16_t col : cols) columns_[static_cast<size_t>(col)].words &= ~rows.words;
  }
  void shorten(int row, int blocks) {
    uint32_t& rank = ranks_[static_cast<size_t>(row)];
    rank -= most * static_cast<uint32_t>(blocks);
    if (rank < most) remove(row);
  }
  void remove(int row) {
    ranks_[static_cast<size_t>(row)] = 0;
    left_.remove(row);
  }

  /** @brief The row that has most blocks, the first of such; -1: none has any. */
  int longest() const {
    uint32_t best = 0;
    for (const uint32_t rank : ranks_) best = std::max(best, rank);
    return best == 0 ? -1 : most - 1 - static_cast<int>(best % most);
  }
  /** @brief The rows that can be chosen: they have a block, and were not removed. */
  const Rows& left() const { return left_; }
  /** @brief Counts which of some columns each row has. */
  template <class Number>
  void count(std::span<const Number> cols, Counts& counts) const {
    counts.add(cols.size() / 8, [&](size_t i) { return columns_[static_cast<size_t>(cols[i])]; });
  }

 private:
  int cols_;
  std::vector<Rows> columns_;
  Rows left_;  // rows that can be chosen
  /// Of each of these, `most` for each block, and 1 for each row behind it: the greatest is that of
  /// the longest row, the first of such.
  std::array<uint32_t, most> ranks_{};
};

}  // namespace bs::cuda

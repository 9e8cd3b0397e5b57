#pragma once
/** @file The rows of a layout as bits: unions of rows, and what they have in common, take a word
 *  for 64 block columns. Pure functions of the layout. */
#include <bs/lib/kept.h>
#include <bs/lib/layout.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
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

/** @brief What a row has of 64 columns. */
struct RowWord {
  int32_t word;   ///< its number: columns from 64 * word on
  uint64_t bits;  ///< not 0
};

/** @brief The rows of op(S) of all heads, without words that are 0: O(nnz) memory and time. */
class RowBits {
 public:
  explicit RowBits(const LayoutRows& from);
  std::span<const RowWord> row(int i) const {
    const auto at = static_cast<size_t>(i);
    return {words_.data() + offsets_[at], words_.data() + offsets_[at + 1]};
  }

 private:
  std::vector<size_t> offsets_;
  std::vector<RowWord> words_;
};
/** @brief The same, made once for a layout and kept with it. */
Kept<RowBits> row_bits_of(const Layout& layout, bool transposed);

/** @brief A set of block columns. */
class ColumnSet {
 public:
  explicit ColumnSet(int cols) : words_(static_cast<size_t>(cols) / 64 + 1) {}

  void add(std::span<const RowWord> row) {
    for (const RowWord& of : row) words_[static_cast<size_t>(of.word)] |= of.bits;
  }
  void add(const ColumnSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  int size() const {
    int sum = 0;
    for (const uint64_t word : words_) sum += std::popcount(word);
    return sum;
  }
  void clear() { words_.assign(words_.size(), 0); }
  const std::vector<uint64_t>& words() const { return words_; }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace bs::cuda

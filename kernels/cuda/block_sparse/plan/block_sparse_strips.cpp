#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace bs::cuda {

namespace {

/// The union of the columns of some rows, a bit each; where pairs stay together, those of pairs and
/// the others.
class Union {
 public:
  Union(int cols, bool pairs)
      : words_(static_cast<size_t>(cols) / 64 + 1), before_(words_.size()), pairs_(pairs) {}

  /// The columns of the rows of a strip.
  template <class Strip>
  void gather(const LayoutRows& from, const Strip& strip) {
    std::fill(words_.begin(), words_.end(), 0);
    strip.for_each([&](int, int row) {
      for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i)
        words_[static_cast<size_t>(from.col[i]) / 64] |= uint64_t{1} << from.col[i] % 64;
    });
    count_ = {};
    for (size_t w = 0; w < words_.size(); ++w) {
      before_[w] = count_;
      count_.of_pairs += std::popcount(of_pairs(w));
      count_.others += std::popcount(words_[w] & ~of_pairs(w));
    }
  }

  int size() const { return count_.of_pairs + count_.others; }
  /// Where it is in the list.
  int place(int32_t col) const {
    const auto w = static_cast<size_t>(col) / 64;
    const uint64_t in_pairs = of_pairs(w), before = (uint64_t{1} << col % 64) - 1;
    const int pairs = before_[w].of_pairs + std::popcount(in_pairs & before);
    const int others = before_[w].others + std::popcount(words_[w] & ~in_pairs & before);
    if (count_.of_pairs == 0) return others;
    const PairOrder order(count_.of_pairs, count_.others);
    return (in_pairs >> col % 64 & 1) != 0 ? order.of_pair(pairs) : order.of_other(others);
  }
  int32_t* copy(int32_t* to) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t left = words_[w]; left != 0; left &= left - 1) {
        const auto col = static_cast<int32_t>(w * 64) + std::countr_zero(left);
        to[place(col)] = col;
      }
    return to + size();
  }

 private:
  struct Count {
    int of_pairs = 0, others = 0;
  };

  uint64_t of_pairs(size_t w) const { return pairs_ ? pairs_of(words_[w]) : 0; }

  std::vector<uint64_t> words_;
  std::vector<Count> before_;  // columns before those of each word
  Count count_;
  bool pairs_;
};

/// The rows of one strip.
class StripRows {
 public:
  StripRows(const LayoutRows& from, const Strips& strips, int head, int strip)
      : side_(strips.shape.side), rows_(from.rows), head_(head), first_(strip * side_) {
    if (strips.shape.gathered)
      listed_ = strips.rows.data() + (int64_t{head} * strips.count + strip) * side_;
  }

  /// f(i, row): the strip's row `i`, which is number `row` over all heads.
  template <class F>
  void for_each(const F& f) const {
    for (int i = 0; i < side_; ++i) {
      const int row = listed_ ? listed_[i] : first_ + i;
      if (row < rows_) f(i, head_ * rows_ + row);
    }
  }

 private:
  int side_, rows_, head_, first_;
  const int32_t* listed_ = nullptr;
};

/// Where each strip's columns begin, and after the last strip their count.
std::vector<int32_t> strip_offsets(const LayoutRows& from, const Strips& strips) {
  std::vector<int32_t> offsets{0};
  Union columns(from.cols, strips.shape.pairs);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips.count; ++strip) {
      int size = 0;
      const StripRows of(from, strips, head, strip);
      if (strips.shape.side == 1) {
        of.for_each([&](int, int row) { size = from.offsets[row + 1] - from.offsets[row]; });
      } else {
        columns.gather(from, of);
        size = columns.size();
      }
      offsets.push_back(offsets.back() + size);
    }
  return offsets;
}

/// The strips of each head, the longest first.
std::vector<int32_t> sorted_strips(const std::vector<int32_t>& offsets, int strips) {
  std::vector<int32_t> order(offsets.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](int32_t strip) {
    const auto s = static_cast<size_t>(strip);
    return offsets[s + 1] - offsets[s];
  };
  for (auto begin = order.begin(); begin != order.end(); begin += strips)
    std::stable_sort(begin, begin + strips,
                     [&](int32_t a, int32_t b) { return length(a) > length(b); });
  return order;
}

}  // namespace

Strips make_strips(const Layout& layout, const StripShape& shape) {
  const LayoutRows from(layout.view(Device::cpu()), shape.transposed);
  Strips strips{
      .shape = shape, .heads = from.heads, .count = (from.rows + shape.side - 1) / shape.side};
  if (shape.gathered) strips.rows = row_groups_of(layout, shape.transposed, shape.side)->rows;
  strips.offsets = strip_offsets(from, strips);
  strips.order = sorted_strips(strips.offsets, strips.count);
  return strips;
}

Kept<Strips> strips_of(const Layout& layout, const StripShape& shape) {
  return layout.derived<Strips>(shape, [&] { return make_strips(layout, shape); });
}

void list_columns(const Layout& layout, const Strips& strips, int32_t* cols, int32_t* blocks) {
  const LayoutRows from(layout.view(Device::cpu()), strips.shape.transposed);
  const int side = strips.shape.side;
  std::fill_n(blocks, static_cast<int64_t>(strips.offsets.back()) * side, -1);
  Union columns(from.cols, strips.shape.pairs);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips.count; ++strip) {
      const StripRows of(from, strips, head, strip);
      columns.gather(from, of);
      of.for_each([&](int at, int row) {
        for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i)
          blocks[columns.place(from.col[i]) * side + at] = from.number ? from.number[i] : i;
      });
      cols = columns.copy(cols);
      blocks += static_cast<int64_t>(columns.size()) * side;
    }
}

double column_reads(const Layout& layout, const Strips& strips, int first, int at_once) {
  const LayoutRows from(layout.view(Device::cpu()), strips.shape.transposed);
  const int ranks = strips.count;
  std::vector<int> last(static_cast<size_t>(from.cols));  // the run that read a column last
  int64_t read = 0, all = 0;
  int run = 0;
  for (int head = 0; head < from.heads; ++head) {
    const int before = run;  // runs of the heads before
    for (int rank = first; rank < ranks; ++rank) {
      if ((rank - first) % at_once == 0) ++run;
      const int strip = strips.order[static_cast<size_t>(int64_t{head} * ranks + rank)] % ranks;
      StripRows(from, strips, head, strip).for_each([&](int, int row) {
        for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i) {
          int& by = last[static_cast<size_t>(from.col[i])];
          read += by != run ? 1 : 0;
          all += by <= before ? 1 : 0;
          by = run;
        }
      });
    }
  }
  return static_cast<double>(read) / static_cast<double>(std::max<int64_t>(all, 1));
}

}  // namespace bs::cuda

#include <bs/kernels/cuda/block_sparse/plan/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_strips.h>
#include <bs/lib/integers.h>
#include <bs/lib/team.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace bs::cuda {

namespace {

/// Rows are compared with those within this height alone, which bounds the time it takes.
constexpr int most_height = 8192;

/// Strips [begin, end) of one head.
struct Window {
  int head, begin, end;
};

std::vector<Window> windows_of(int heads, int strips, int most) {
  std::vector<Window> windows;
  for (int head = 0; head < heads; ++head)
    for_windows(strips, most, [&](int begin, int end) { windows.push_back({head, begin, end}); });
  return windows;
}

/// Chooses the rows of the strips of one window, `most_rows` at most.
template <int most_rows>
class RowChooser {
 public:
  RowChooser(const LayoutRows& from, const RowBits& bits, int side, const Window& window)
      : from_(from),
        bits_(bits),
        side_(static_cast<size_t>(side)),
        window_(window),
        first_(window.begin * side),
        rows_(std::min(window.end * side, from.rows) - first_),
        left_(from.cols),
        all_(static_cast<size_t>(from.cols) / 64 + 1),
        fresh_(static_cast<size_t>(from.cols) + 8) {
    std::vector<const RowWord*> next;
    next.reserve(static_cast<size_t>(rows_));
    for (int row = 0; row < rows_; ++row) next.push_back(bits.row(number(row)).data());
    left_.put(rows_, [&](int row, int word) {
      const RowWord*& at = next[static_cast<size_t>(row)];
      const std::span<const RowWord> all = bits_.row(number(row));
      return at != all.data() + all.size() && at->word == word ? (at++)->bits : 0;
    });
  }

  /// Writes the rows of all strips to `to`.
  void choose(int32_t* to) {
    std::vector<int> empty, chosen;
    for (int row = 0; row < rows_; ++row)
      if (!left_.left().has(row)) empty.push_back(row);
    for (int strip = window_.begin; strip < window_.end; ++strip) {
      chosen.clear();
      if (const int seed = left_.longest(); seed >= 0) {
        std::fill(all_.begin(), all_.end(), 0);
        chosen.push_back(seed);
        extend(chosen);
      }
      for (const int row : chosen) left_.remove(row);
      // Rows without a block are left, if any.
      for (; chosen.size() < side_ && !empty.empty(); empty.pop_back())
        chosen.push_back(empty.back());
      std::sort(chosen.begin(), chosen.end());
      for (size_t i = 0; i < side_; ++i)
        *to++ = i < chosen.size() ? first_ + chosen[i] : from_.rows;
    }
  }

 private:
  /// Adds to a strip of one row: each time the one that has most of the union's columns.
  void extend(std::vector<int>& chosen) {
    typename AlikeRows<most_rows>::Counts shared;
    auto others = left_.left();
    others.remove(chosen.back());
    while (chosen.size() < side_) {
      left_.count(add(chosen.back()), shared);
      auto best = others;
      shared.keep_greatest(best);
      const int next = best.first();
      if (next < 0) return;
      chosen.push_back(next);
      others.remove(next);
    }
  }
  int number(int row) const { return window_.head * from_.rows + first_ + row; }
  /// Adds a row to the union of a strip; its columns that were not there yet.
  std::span<const int> add(int row) {
    int* to = fresh_.data();
    for (const RowWord& of : bits_.row(number(row))) {
      uint64_t& had = all_[static_cast<size_t>(of.word)];
      for (uint64_t fresh = of.bits & ~had; fresh != 0; fresh &= fresh - 1)
        *to++ = of.word * 64 + std::countr_zero(fresh);
      had |= of.bits;
    }
    std::fill_n(to, 8, left_.none());
    return {fresh_.data(), static_cast<size_t>(round_up(to - fresh_.data(), 8))};
  }

  LayoutRows from_;
  const RowBits& bits_;
  size_t side_;
  Window window_;
  int first_, rows_;
  AlikeRows<most_rows> left_;  // rows that are in no strip yet
  std::vector<uint64_t> all_;
  std::vector<int> fresh_;
};

/// Where each column of a union is listed; where pairs stay together, those of pairs and the
/// others have places of their own.
class Places {
 public:
  Places(const ColumnSet& columns, bool pairs) : words_(columns.words()), pairs_(pairs) {
    for (size_t w = 0; w < words_.size(); ++w) {
      before_.push_back(count_);
      count_.of_pairs += std::popcount(of_pairs(w));
      count_.others += std::popcount(words_[w] & ~of_pairs(w));
    }
  }

  int place(int32_t col) const {
    const auto w = static_cast<size_t>(col) / 64;
    const uint64_t in_pairs = of_pairs(w), before = (uint64_t{1} << col % 64) - 1;
    const int pairs = before_[w].of_pairs + std::popcount(in_pairs & before);
    const int others = before_[w].others + std::popcount(words_[w] & ~in_pairs & before);
    if (count_.of_pairs == 0) return others;
    const PairOrder order(count_.of_pairs, count_.others);
    return (in_pairs >> col % 64 & 1) != 0 ? order.of_pair(pairs) : order.of_other(others);
  }

 private:
  struct Count {
    int of_pairs = 0, others = 0;
  };

  uint64_t of_pairs(size_t w) const { return pairs_ ? pairs_of(words_[w]) : 0; }

  const std::vector<uint64_t>& words_;
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
std::vector<int32_t> strip_offsets(const LayoutRows& from, const RowBits& bits,
                                   const Strips& strips) {
  std::vector<int32_t> offsets{0};
  ColumnSet columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips.count; ++strip) {
      columns.clear();
      StripRows(from, strips, head, strip).for_each([&](int, int row) {
        columns.add(bits.row(row));
      });
      offsets.push_back(offsets.back() + columns.size());
    }
  return offsets;
}

/// The strips of each head, the longest first.
std::vector<int32_t> sorted_strips(const Strips& strips) {
  std::vector<int32_t> order(strips.offsets.size() - 1);
  std::iota(order.begin(), order.end(), 0);
  for (auto begin = order.begin(); begin != order.end(); begin += strips.count)
    std::ranges::stable_sort(begin, begin + strips.count, std::greater{},
                             [&](int32_t strip) { return strips.length(strip); });
  return order;
}

}  // namespace

std::vector<int32_t> alike_rows(const Layout& layout, bool transposed, int side) {
  const int block = layout.block();
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  const Kept<RowBits> bits = row_bits_of(layout, transposed);
  const auto strips = static_cast<int>(ceil_div(from.rows, side));
  const std::vector<Window> windows = windows_of(from.heads, strips, most_height / (side * block));
  std::vector<int32_t> rows(static_cast<size_t>(from.heads) * static_cast<size_t>(strips * side));
  parallel_each(std::ssize(windows), team_for(windows.size(), layout.nnz()), [&](int64_t number) {
    const Window& window = windows[static_cast<size_t>(number)];
    int32_t* const to = rows.data() + (int64_t{window.head} * strips + window.begin) * side;
    if (block == 16) RowChooser<most_height / 16>(from, *bits, side, window).choose(to);
    if (block == 32) RowChooser<most_height / 32>(from, *bits, side, window).choose(to);
    if (block == 64) RowChooser<most_height / 64>(from, *bits, side, window).choose(to);
  });
  return rows;
}

Strips make_strips(const Layout& layout, const StripShape& shape) {
  const LayoutRows from(layout.view(Device::cpu()), shape.transposed);
  Strips strips{.shape = shape,
                .heads = from.heads,
                .count = static_cast<int>(ceil_div(from.rows, shape.side))};
  if (shape.gathered) strips.rows = alike_rows(layout, shape.transposed, shape.side);
  strips.offsets = strip_offsets(from, *row_bits_of(layout, shape.transposed), strips);
  strips.order = sorted_strips(strips);
  return strips;
}

Kept<Strips> strips_of(const Layout& layout, const StripShape& shape) {
  return layout.derived<Strips>(shape, [&] {
    if (!shape.pairs) return make_strips(layout, shape);
    StripShape sorted = shape;
    sorted.pairs = false;
    Strips strips = *strips_of(layout, sorted);  // the same but for the order of their columns
    strips.shape = shape;
    return strips;
  });
}

void list_columns(const Layout& layout, const Strips& strips, int32_t* cols, int32_t* blocks) {
  const LayoutRows from(layout.view(Device::cpu()), strips.shape.transposed);
  const Kept<RowBits> bits = row_bits_of(layout, strips.shape.transposed);
  const int side = strips.shape.side;
  std::fill_n(blocks, strips.columns() * side, -1);
  ColumnSet columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips.count; ++strip) {
      const StripRows rows(from, strips, head, strip);
      columns.clear();
      rows.for_each([&](int, int row) { columns.add(bits->row(row)); });
      const Places places(columns, strips.shape.pairs);
      rows.for_each([&](int at, int row) {
        for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i) {
          const int place = places.place(from.col[i]);
          cols[place] = from.col[i];
          blocks[place * side + at] = from.number ? from.number[i] : i;
        }
      });
      cols += columns.size();
      blocks += static_cast<int64_t>(columns.size()) * side;
    }
}

double column_reads(const Layout& layout, const Strips& strips, int first, int at_once) {
  const LayoutRows from(layout.view(Device::cpu()), strips.shape.transposed);
  const Kept<RowBits> bits = row_bits_of(layout, strips.shape.transposed);
  ColumnSet run(from.cols), head_columns(from.cols);
  int64_t read = 0, all = 0;
  for (int head = 0; head < from.heads; ++head) {
    head_columns.clear();
    for (int begin = first; begin < strips.count; begin += at_once) {
      run.clear();
      for (int rank = begin; rank < std::min(begin + at_once, strips.count); ++rank) {
        const auto strip = static_cast<size_t>(int64_t{head} * strips.count + rank);
        StripRows(from, strips, head, strips.order[strip] % strips.count)
            .for_each([&](int, int row) { run.add(bits->row(row)); });
      }
      read += run.size();
      head_columns.add(run);
    }
    all += head_columns.size();
  }
  return static_cast<double>(read) / static_cast<double>(std::max<int64_t>(all, 1));
}

}  // namespace bs::cuda

#include <bs/kernels/cuda/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse_strips_fill.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace bs::cuda {

namespace {

/// The rows of op(S), whatever order they are stored in.
struct Rows {
  const int32_t* offsets;
  const int32_t* col;
  const int32_t* number;  ///< null: blocks are numbered in this order
  int heads, rows, cols;

  Rows(const LayoutView& v, bool transposed)
      : offsets(transposed ? v.col_offsets : v.row_offsets),
        col(transposed ? v.transposed_row : v.col_of),
        number(transposed ? v.transposed : nullptr),
        heads(v.heads),
        rows(transposed ? v.cols : v.rows),
        cols(transposed ? v.rows : v.cols) {}
};

/// The union of the columns of some rows: a bit a column. Some come first, then the rest: for each
/// of the two, the number of columns before each word.
class Union {
 public:
  using Words = std::vector<uint64_t>;

  explicit Union(int cols) : words_(static_cast<size_t>(cols) / 64 + 1), first_(words_.size()) {}

  /// The columns of rows [begin, end) of all heads, none of them first.
  void gather(const Rows& from, int begin, int end) {
    set(words_, from, begin, end);
    std::fill(first_.begin(), first_.end(), 0);
  }
  /// Those come first that rows [begin, end) have too.
  void put_first(const Rows& from, int begin, int end) {
    set(first_, from, begin, end);
    for (size_t w = 0; w < words_.size(); ++w) first_[w] &= words_[w];
  }
  void number() {
    before_first_.resize(words_.size());
    before_rest_.resize(words_.size());
    int at = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      before_first_[w] = at;
      at += std::popcount(first_[w]);
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      before_rest_[w] = at;
      at += std::popcount(words_[w] & ~first_[w]);
    }
  }

  int size() const { return count(words_); }
  int size_first() const { return count(first_); }
  int rank(int32_t col) const {
    const auto w = static_cast<size_t>(col) / 64;
    const uint64_t bit = uint64_t{1} << col % 64, below = bit - 1;
    return (first_[w] & bit) != 0 ? before_first_[w] + std::popcount(first_[w] & below)
                                  : before_rest_[w] + std::popcount(words_[w] & ~first_[w] & below);
  }
  int32_t* copy(int32_t* to) const {
    for (const bool first : {true, false})
      for (size_t w = 0; w < words_.size(); ++w)
        for (uint64_t left = first ? first_[w] : words_[w] & ~first_[w]; left != 0;
             left &= left - 1)
          *to++ = static_cast<int32_t>(w * 64) + std::countr_zero(left);
    return to;
  }

 private:
  static void set(Words& words, const Rows& from, int begin, int end) {
    std::fill(words.begin(), words.end(), 0);
    for (int32_t i = from.offsets[begin]; i < from.offsets[end]; ++i)
      words[static_cast<size_t>(from.col[i]) / 64] |= uint64_t{1} << from.col[i] % 64;
  }
  static int count(const Words& words) {
    int sum = 0;
    for (const uint64_t word : words) sum += std::popcount(word);
    return sum;
  }

  Words words_, first_;
  std::vector<int> before_first_, before_rest_;
};

/// The rows of a strip, and of the one that it is paired with: none where it has none.
struct StripRows {
  int begin, end, other_begin, other_end;

  StripRows(const Rows& from, int rows, int head, int strip) {
    const auto row = [&](int of) { return head * from.rows + std::min(of * rows, from.rows); };
    begin = row(strip);
    end = row(strip + 1);
    other_begin = row(strip ^ 1);
    other_end = row((strip ^ 1) + 1);
  }
};

/// Where each strip's columns begin, and after the last strip their count.
std::vector<int32_t> strip_offsets(const Rows& from, int rows, int strips,
                                   std::vector<int32_t>* shared) {
  std::vector<int32_t> offsets{0};
  Union columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips; ++strip) {
      const StripRows of(from, rows, head, strip);
      int size = from.offsets[of.end] - from.offsets[of.begin];
      if (rows > 1 || shared) {
        columns.gather(from, of.begin, of.end);
        size = columns.size();
      }
      offsets.push_back(offsets.back() + size);
      if (!shared) continue;
      if (strip % 2 == 1) {
        shared->push_back(shared->back());
      } else {
        columns.put_first(from, of.other_begin, of.other_end);
        shared->push_back(columns.size_first());
      }
    }
  return offsets;
}

/// Fills in the columns of every strip, and the blocks of its rows there.
void fill_strips(const Rows& from, int rows, int strips, bool paired, int32_t entries,
                 int32_t* cols, int32_t* blocks) {
  std::fill_n(blocks, static_cast<int64_t>(entries) * rows, -1);
  Union columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips; ++strip) {
      const StripRows of(from, rows, head, strip);
      columns.gather(from, of.begin, of.end);
      if (paired) columns.put_first(from, of.other_begin, of.other_end);
      columns.number();
      for (int row = of.begin; row < of.end; ++row)
        for (int32_t i = from.offsets[row]; i < from.offsets[row + 1]; ++i)
          blocks[columns.rank(from.col[i]) * rows + row - of.begin] =
              from.number ? from.number[i] : i;
      cols = columns.copy(cols);
      blocks += static_cast<int64_t>(columns.size()) * rows;
    }
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

BlockSparseStrips::BlockSparseStrips(const Layout& layout, bool transposed, int rows, Device device,
                                     bool paired) {
  const Rows from(layout.view(Device::cpu()), transposed);
  list.strips = (from.rows + rows - 1) / rows;
  offsets = strip_offsets(from, rows, list.strips, paired ? &shared : nullptr);
  order = sorted_strips(offsets, list.strips);
  const int64_t entries = offsets.back();
  std::vector<int32_t> listed = offsets;
  listed.insert(listed.end(), order.begin(), order.end());
  lists = upload(listed, device);
  columns = Tensor::empty({entries * (1 + rows)}, i32, device);
  list.offsets = lists.data<int32_t>();
  list.order = list.offsets + offsets.size();
  auto* const cols = columns.data<int32_t>();
  if (device.is_cpu()) {
    fill_strips(from, rows, list.strips, paired, offsets.back(), cols, cols + entries);
  } else if (from.cols <= most_filled_cols) {
    fill_strips(layout.view(device), {transposed, paired, rows, list.strips}, list.offsets, cols,
                cols + entries, current_stream(device));
  } else {
    const BlockSparseStrips host(layout, transposed, rows, Device::cpu(), paired);
    copy_bytes(host.columns, columns);
  }
  list.cols = cols;
  list.blocks = cols + entries;
  made = Milestone(current_stream(device));
}

const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, Device device,
                                   bool paired) {
  const auto key = static_cast<uint64_t>(rows) | static_cast<uint64_t>(transposed) << 8 |
                   static_cast<uint64_t>(paired) << 9 | static_cast<uint64_t>(device.index()) << 16;
  const auto& strips = layout.derived<BlockSparseStrips>(
      key, [&] { return BlockSparseStrips(layout, transposed, rows, device, paired); });
  strips.made.wait(current_stream(device));
  return strips;
}

}  // namespace bs::cuda

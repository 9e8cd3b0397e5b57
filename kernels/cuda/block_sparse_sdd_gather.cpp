#include <bs/kernels/cuda/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse_matmul_config.h>
#include <bs/kernels/cuda/block_sparse_sdd_gather.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

namespace bs::cuda {

namespace {

/// Items come from windows of so many rows and block columns: what runs at once then reads less of
/// both operands, rows beyond would find little more in common, and the time that it takes to
/// compare all rows is bounded.
constexpr int most_height = 4096, most_cols = 256;
/// Block rows of an item at most.
constexpr size_t tallest = 8;

/// Columns of a window, a bit each.
class Bits {
 public:
  bool has(int col) const { return (words_[static_cast<size_t>(col) / 64] >> col % 64 & 1) != 0; }
  void flip(int col) { words_[static_cast<size_t>(col) / 64] ^= uint64_t{1} << col % 64; }
  /// Adds those that both have.
  void add(const Bits& x, const Bits& y) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= x.words_[w] & y.words_[w];
  }
  Bits operator-(const Bits& other) const {
    Bits rest;
    for (size_t w = 0; w < words_.size(); ++w) rest.words_[w] = words_[w] & ~other.words_[w];
    return rest;
  }
  /// How many come before a column.
  int rank(int col) const {
    const auto at = static_cast<size_t>(col) / 64;
    int sum = std::popcount(words_[at] & ((uint64_t{1} << col % 64) - 1));
    for (size_t w = 0; w < at; ++w) sum += std::popcount(words_[w]);
    return sum;
  }
  int in_common(const Bits& other) const {
    static_assert(most_cols == 4 * 64);  // a loop takes half as long again
    const auto word = [&](size_t w) { return std::popcount(words_[w] & other.words_[w]); };
    return word(0) + word(1) + word(2) + word(3);
  }
  template <class F>
  void for_each(const F& f) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t left = words_[w]; left != 0; left &= left - 1)
        f(static_cast<int>(w * 64) + std::countr_zero(left));
  }

 private:
  std::array<uint64_t, most_cols / 64> words_{};
};

/// Some rows of one head, and some of its columns.
struct Window {
  int begin, end;  ///< rows, over all heads
  int col, end_col;
};

/// The blocks of a window that no item has yet.
class Remaining {
 public:
  Remaining(const LayoutRows& from, const Window& window)
      : from_(from),
        window_(window),
        bits_(static_cast<size_t>(window.end - window.begin)),
        size_(bits_.size()),
        first_(bits_.size()) {
    for (size_t row = 0; row < bits_.size(); ++row) {
      const int32_t* const line = from.offsets + window.begin + row;
      const int32_t* const end = from.col + line[1];
      const int32_t* at = std::lower_bound(from.col + line[0], end, window.col);
      first_[row] = static_cast<int32_t>(at - from.col);
      for (; at != end && *at < window.end_col; ++at) {
        bits_[row].flip(*at - window.col);
        ++size_[row];
      }
    }
    whole_ = bits_;
  }

  int rows() const { return static_cast<int>(size_.size()); }
  int size(int row) const { return size_[static_cast<size_t>(row)]; }
  int fullest() const {
    return static_cast<int>(std::max_element(size_.begin(), size_.end()) - size_.begin());
  }
  const Bits& bits(int row) const { return bits_[static_cast<size_t>(row)]; }
  /// The number of a block, which an item then has; -1 where there is none left.
  int32_t take(int row, int col) {
    if (!bits(row).has(col)) return -1;
    bits_[static_cast<size_t>(row)].flip(col);
    --size_[static_cast<size_t>(row)];
    const int32_t i = first_[static_cast<size_t>(row)] + whole_[static_cast<size_t>(row)].rank(col);
    return from_.number ? from_.number[i] : i;
  }
  int32_t row(int own) const { return window_.begin + own; }
  int32_t col(int own) const { return window_.col + own; }

 private:
  LayoutRows from_;
  Window window_;
  std::vector<Bits> bits_, whole_;  // what is left of rows, and what was there
  std::vector<int> size_;
  std::vector<int32_t> first_;  // block of a row, in the order of op(S)
};

/// Cuts items out of what remains.
class Gatherer {
 public:
  Gatherer(int rows, int cols)
      : rows_(static_cast<size_t>(rows)), most_(static_cast<size_t>(cols)) {}

  /// Appends items until nothing remains.
  void empty(Remaining from, GatheredStrips& out) {
    for (int seed = from.fullest(); from.size(seed) > 0; seed = from.fullest()) {
      choose_rows(from, seed);
      choose_cols(from);
      append(from, out);
    }
  }

 private:
  /// The seed, and those that are most like what was chosen before them.
  void choose_rows(const Remaining& from, int seed) {
    chosen_.assign(1, seed);
    alike_.extend(
        chosen_, rows_, from.rows(), [&](int row) { return from.size(row); },
        [&](int row) {
          return [&from, &last = from.bits(row)](int other) {
            return last.in_common(from.bits(other));
          };
        });
  }
  /// The columns that most of the rows have.
  void choose_cols(const Remaining& from) {
    std::array<Bits, tallest + 2> had{};  // by so many of them at least
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const Bits& bits = from.bits(chosen_[i]);
      for (size_t times = i; times > 0; --times) had[times + 1].add(had[times], bits);
      had[1].add(bits, bits);
    }
    cols_.clear();
    for (size_t times = chosen_.size(); times > 0 && cols_.size() < most_; --times)
      (had[times] - had[times + 1]).for_each([&](int col) {
        if (cols_.size() < most_) cols_.push_back(col);
      });
    std::sort(cols_.begin(), cols_.end());
  }
  void append(Remaining& from, GatheredStrips& out) const {
    out.shares.push_back({.strip = static_cast<int>(out.shares.size()),
                          .first = static_cast<int>(out.cols.size()),
                          .count = static_cast<int>(cols_.size()),
                          .halved = 0});
    // Where rows are fewer, the first one comes in their place, and is not written.
    for (size_t i = 0; i < rows_; ++i)
      out.rows.push_back(from.row(chosen_[i < chosen_.size() ? i : 0]));
    for (const int col : cols_) {
      out.cols.push_back(from.col(col));
      for (size_t i = 0; i < rows_; ++i)
        out.blocks.push_back(i < chosen_.size() ? from.take(chosen_[i], col) : -1);
    }
  }

  size_t rows_, most_;
  AlikeRows alike_;
  std::vector<int> chosen_;
  std::vector<int> cols_;
};

/// The windows of all heads, of one after the other, each about as large.
std::vector<Window> windows_of(const LayoutRows& from, int block) {
  const auto parts = [](int size, int most) { return (size + most - 1) / most; };
  const auto part = [](int size, int i, int of) {
    return static_cast<int>(int64_t{size} * i / of);
  };
  const int tall = parts(from.rows, most_height / block);
  const int wide = parts(from.cols, most_cols);
  std::vector<Window> windows;
  for (int head = 0; head < from.heads; ++head)
    for (int i = 0; i < tall; ++i)
      for (int j = 0; j < wide; ++j)
        windows.push_back({head * from.rows + part(from.rows, i, tall),
                           head * from.rows + part(from.rows, i + 1, tall),
                           part(from.cols, j, wide), part(from.cols, j + 1, wide)});
  return windows;
}

void append(GatheredStrips& out, const GatheredStrips& part) {
  const auto strip = static_cast<int>(out.shares.size());
  const auto first = static_cast<int>(out.cols.size());
  for (device::SddShare share : part.shares) {
    share.strip += strip;
    share.first += first;
    out.shares.push_back(share);
  }
  out.rows.insert(out.rows.end(), part.rows.begin(), part.rows.end());
  out.cols.insert(out.cols.end(), part.cols.begin(), part.cols.end());
  out.blocks.insert(out.blocks.end(), part.blocks.begin(), part.blocks.end());
}

}  // namespace

GatheredStrips gather_sdd(const Layout& layout, bool transposed, SddForm form) {
  const int block = layout.block();
  const WarpgroupTile tile = warpgroup_sdd_tile(block, form);
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  const std::vector<Window> windows = windows_of(from, block);
  std::vector<GatheredStrips> parts(windows.size());
#pragma omp parallel for schedule(dynamic) if (windows.size() > 1)
  for (size_t i = 0; i < windows.size(); ++i)
    Gatherer(tile.sdd_rows(block), tile.sdd_cols(block)).empty({from, windows[i]}, parts[i]);
  GatheredStrips out{.strip_rows = tile.sdd_rows(block)};
  for (const GatheredStrips& part : parts) append(out, part);
  return out;
}

}  // namespace bs::cuda

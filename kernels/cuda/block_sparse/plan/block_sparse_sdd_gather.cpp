#include <bs/kernels/cuda/block_sparse/plan/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_bits.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/lib/integers.h>
#include <bs/lib/team.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace bs::cuda {

namespace {

/// Items come from windows of so many rows and block columns: what runs at once then reads less of
/// both operands, rows beyond would find little more in common, and the time that it takes to
/// compare all rows is bounded.
constexpr int most_height = 4096, most_cols = 256;

using Columns = BitSet<most_cols>;

/// Some rows of one head, and some of its columns.
struct Window {
  int begin, end;  ///< rows, over all heads
  int col, end_col;
};

/// The blocks of a window, and the items that have them: in their order, each has what those before
/// it left of its rows and columns.
class WindowItems {
 public:
  WindowItems(const LayoutRows& from, const RowBits& bits, const Window& window)
      : window_(window), lines_(static_cast<size_t>(window.end - window.begin)) {
    Columns within;
    for (int col = window.col; col < window.end_col; ++col) within.put(col - window.col);
    for (int row = window.begin; row < window.end; ++row) {
      Line& line = lines_[static_cast<size_t>(row - window.begin)];
      const int32_t* const begin = from.col + from.offsets[row];
      const int32_t* const end = from.col + from.offsets[row + 1];
      line.first = static_cast<int>(std::lower_bound(begin, end, window.col) - from.col);
      for (const RowWord& of : bits.row(row)) line.set.put_word(of.word * 64 - window.col, of.bits);
      line.set.words &= within.words;
    }
  }

  int height() const { return window_.end - window_.begin; }
  int width() const { return window_.end_col - window_.col; }
  const Columns& columns(int row) const { return lines_[static_cast<size_t>(row)].set; }

  void add(const std::vector<int>& rows, size_t strip_rows, const Columns& cols) {
    // Where rows are fewer, the first one comes in their place, and has nothing more.
    for (size_t i = 0; i < strip_rows; ++i) rows_.push_back(rows[i < rows.size() ? i : 0]);
    cols_.push_back(cols);
  }
  /// Appends the items to those of other windows.
  void append_to(std::vector<device::SddRange>& all) {
    first_item_ = all.size();
    int first = all.empty() ? 0 : all.back().first + all.back().count;
    for (const Columns& cols : cols_) {
      all.push_back({.strip = static_cast<int>(all.size()), .first = first, .count = cols.size()});
      first += all.back().count;
    }
  }
  size_t first_item() const { return first_item_; }
  /// Lists the rows, columns and blocks of the items, which `to` has room for.
  void list(const LayoutRows& from, const device::SddRange* ranges, GatheredStrips& to) const {
    std::vector<Columns> left;
    left.reserve(lines_.size());
    for (const Line& line : lines_) left.push_back(line.set);
    const auto strip_rows = static_cast<size_t>(to.strip_rows);
    std::array<int, Columns::listed> listed;
    for (size_t item = 0; item < cols_.size(); ++item) {
      const auto [strip, first, count] = ranges[item];
      const std::span<const int> cols(listed.data(), cols_[item].list(listed.data()));
      std::transform(cols.begin(), cols.end(), to.cols.begin() + first,
                     [&](int col) { return window_.col + col; });
      for (size_t i = 0; i < strip_rows; ++i) {
        const auto row = static_cast<size_t>(rows_[item * strip_rows + i]);
        const Columns own{left[row].words & cols_[item].words};
        left[row].words ^= own.words;
        to.rows[static_cast<size_t>(strip) * strip_rows + i] =
            window_.begin + static_cast<int32_t>(row);
        list_blocks(from, lines_[row], own, cols,
                    to.blocks.data() + static_cast<size_t>(first) * strip_rows + i, strip_rows);
      }
    }
  }

 private:
  struct Line {
    Columns set{};
    int first = 0;  ///< place of its first block in LayoutRows
  };

  /// The numbers of the blocks of `own`, at the places of their columns; -1 at the others. Without
  /// a branch: which blocks are there is not foreseen.
  static void list_blocks(const LayoutRows& from, const Line& line, const Columns& own,
                          std::span<const int> cols, int32_t* to, size_t stride) {
    std::array<int, Columns::count> before;  // blocks of the row, and all before it
    int place = line.first;
    for (int w = 0; w < Columns::count; ++w) {
      before[static_cast<size_t>(w)] = place;
      place += std::popcount(line.set.words[w]);
    }
    for (const int col : cols) {
      const auto w = static_cast<unsigned>(col) / 64, shift = static_cast<unsigned>(col) % 64;
      const uint64_t upto = line.set.words[w] << (63 - shift);  // the last one is its own
      const int at = before[w] + std::popcount(upto << 1);
      const int lacks = static_cast<int>(own.words[w] >> shift & 1) - 1;
      *to = (from.number ? from.number[at & ~lacks] : at) | lacks;
      to += stride;
    }
  }

  Window window_;
  std::vector<Line> lines_;
  std::vector<int32_t> rows_;  // of the items, in the window
  std::vector<Columns> cols_;
  size_t first_item_ = 0;  // among those of all windows
};

/// What the items of all windows read, and the blocks that are left would in items without a hole.
class Spending {
 public:
  Spending(const GatherLimit& limit, int rows, int cols, int64_t blocks)
      : limit_(limit),
        least_(limit.of(cols) / (rows * cols)),
        spent_(least_ * static_cast<double>(blocks)) {}
  /// An item of so many columns and blocks. Others may be added at the same time.
  void add(int columns, int blocks) { spent_ += limit_.of(columns) - least_ * blocks; }
  bool is_over() const { return spent_ > limit_.most * (1 + 1e-9); }

 private:
  GatherLimit limit_;
  double least_;  // for a block
  std::atomic<double> spent_;
};

/// Cuts items out of a window of `most_rows` at most.
template <int most_rows>
class Gatherer {
 public:
  Gatherer(WindowItems& window, int rows, int cols, Spending& spending)
      : window_(window),
        rows_(static_cast<size_t>(rows)),
        most_(cols),
        spending_(spending),
        alike_(window.width()) {
    left_.reserve(static_cast<size_t>(window.height()));
    for (int row = 0; row < window.height(); ++row) left_.push_back(window.columns(row));
    alike_.put(window.height(),
               [&](int row, int word) { return left_[static_cast<size_t>(row)].words[word]; });
  }

  /// Adds items until nothing remains, or too much is spent.
  void empty() {
    for (int seed = alike_.longest(); seed >= 0 && !spending_.is_over(); seed = alike_.longest()) {
      // The seed, and those that are most like what was chosen before them.
      chosen_.assign(1, seed);
      alike_.extend(chosen_, rows_, [&](int row) { return list(left_[static_cast<size_t>(row)]); });
      take(choose_cols());
    }
  }

 private:
  std::span<const int> list(const Columns& cols) {
    int* to = cols.list(listed_.data());
    std::fill_n(to, 8, alike_.none());
    return {listed_.data(), static_cast<size_t>(round_up(to - listed_.data(), 8))};
  }
  /// The columns that most of the rows have.
  Columns choose_cols() {
    BitCounts<most_cols> had;
    had.add(1, [&](size_t i) {
      return i < chosen_.size() ? left_[static_cast<size_t>(chosen_[i])] : Columns();
    });
    const Columns all = had.counted();
    Columns cols;
    int size = 0;
    for (size_t times = chosen_.size(); times > 0 && size < most_; --times) {
      Columns next = all;
      had.keep_equal(next, times);
      if (next.size() > most_ - size) next.keep_first(most_ - size);
      size += next.size();
      cols.words |= next.words;
    }
    return cols;
  }
  void take(const Columns& cols) {
    typename AlikeRows<most_rows>::Rows rows;
    int blocks = 0;
    for (const int row : chosen_) {
      Columns& left = left_[static_cast<size_t>(row)];
      const Columns own{left.words & cols.words};
      left.words ^= own.words;
      blocks += own.size();
      rows.put(row);
    }
    alike_.take(rows, list(cols));
    window_.add(chosen_, rows_, cols);
    spending_.add(cols.size(), blocks);
  }

  WindowItems& window_;
  const size_t rows_;
  const int most_;
  Spending& spending_;
  AlikeRows<most_rows> alike_;
  std::vector<Columns> left_;  // of each row
  std::vector<int> chosen_;
  std::array<int, Columns::listed> listed_;
};

/// The items of all windows.
struct Gathered {
  LayoutRows from;
  std::vector<WindowItems> windows = {};
};

GatheredStrips list_strips(const Gathered& all, int strip_rows, int threads,
                           const std::vector<device::SddRange>& ranges) {
  GatheredStrips out{.strip_rows = strip_rows, .ranges = ranges};
  const auto high = static_cast<size_t>(strip_rows);
  const int entries = ranges.empty() ? 0 : ranges.back().first + ranges.back().count;
  out.rows.resize(ranges.size() * high);
  out.cols.resize(static_cast<size_t>(entries));
  out.blocks.resize(out.cols.size() * high);
  parallel_each(std::ssize(all.windows), threads, [&](int64_t i) {
    const WindowItems& of = all.windows[static_cast<size_t>(i)];
    of.list(all.from, ranges.data() + of.first_item(), out);
  });
  return out;
}

/// The windows of all heads, of one after the other, each about as large; of `most_wide` block
/// columns at most.
std::vector<Window> windows_of(const LayoutRows& from, int block, int most_wide) {
  const auto parts = [](int size, int most) { return (size + most - 1) / most; };
  const auto part = [](int size, int i, int of) {
    return static_cast<int>(int64_t{size} * i / of);
  };
  const int tall = parts(from.rows, most_height / block);
  const int wide = parts(from.cols, most_wide);
  std::vector<Window> windows;
  for (int head = 0; head < from.heads; ++head)
    for (int i = 0; i < tall; ++i)
      for (int j = 0; j < wide; ++j)
        windows.push_back({head * from.rows + part(from.rows, i, tall),
                           head * from.rows + part(from.rows, i + 1, tall),
                           part(from.cols, j, wide), part(from.cols, j + 1, wide)});
  return windows;
}

}  // namespace

int sdd_window(int64_t rows, int64_t columns, int block, double step, const Gpu& gpu) {
  // Measured on an H100 at 8192^3: what runs at once, which is of one or two windows, reads each
  // line as often as twice, at the rate of the bus; windows of 2048 columns take the least time.
  constexpr int again = 2, line = 128, narrow = 2048;
  const int64_t lines = std::min<int64_t>(rows, most_height) +
                        std::min<int64_t>(columns, int64_t{2} * most_cols * block);
  const bool waits = static_cast<double>(again * line * lines) > step * gpu.memory_rate;
  return waits ? narrow : widest_window;
}

std::optional<GatheredItems> gather_sdd(const Layout& layout, bool transposed, int rows,
                                        int columns, int window, const GatherLimit& limit) {
  const int block = layout.block();
  Spending spending(limit, rows / block, columns / block, layout.nnz());
  if (spending.is_over()) return {};
  const Kept<RowBits> bits = row_bits_of(layout, transposed);
  const auto all =
      std::make_shared<Gathered>(Gathered{LayoutRows(layout.view(Device::cpu()), transposed)});
  const std::vector<Window> windows =
      windows_of(all->from, block, std::clamp(window / block, 1, most_cols));
  all->windows.reserve(windows.size());
  for (const Window& of : windows) all->windows.emplace_back(all->from, *bits, of);
  const int threads = team_for(windows.size(), layout.nnz());
  parallel_each(std::ssize(windows), threads, [&](int64_t i) {
    WindowItems& of = all->windows[static_cast<size_t>(i)];
    const auto empty = [&](auto most_rows) {
      Gatherer<most_rows.value>(of, rows / block, columns / block, spending).empty();
    };
    if (block == 16) empty(std::integral_constant<int, most_height / 16>());
    if (block == 32) empty(std::integral_constant<int, most_height / 32>());
    if (block == 64) empty(std::integral_constant<int, most_height / 64>());
  });
  if (spending.is_over()) return {};
  GatheredItems out;
  for (WindowItems& of : all->windows) of.append_to(out.ranges);
  out.list = [all, threads, strip_rows = rows / block, ranges = out.ranges] {
    return list_strips(*all, strip_rows, threads, ranges);
  };
  return out;
}

}  // namespace bs::cuda

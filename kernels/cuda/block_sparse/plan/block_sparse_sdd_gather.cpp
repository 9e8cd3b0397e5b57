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
#include <utility>
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
  WindowItems(const RowBits& bits, const Window& window)
      : window_(window), lines_(static_cast<size_t>(window.end - window.begin)) {
    Columns within;
    for (int col = window.col; col < window.end_col; ++col) within.put(col - window.col);
    for (int row = window.begin; row < window.end; ++row) {
      Columns& line = lines_[static_cast<size_t>(row - window.begin)];
      for (const RowWord& of : bits.row(row)) line.put_word(of.word * 64 - window.col, of.bits);
      line.words &= within.words;
    }
  }

  int height() const { return window_.end - window_.begin; }
  int width() const { return window_.end_col - window_.col; }
  const Columns& columns(int row) const { return lines_[static_cast<size_t>(row)]; }

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
    const auto strip_rows = static_cast<size_t>(to.strip_rows);
    const auto wide = static_cast<size_t>(width());
    std::vector<int32_t> numbers(lines_.size() * wide, -1);  // of blocks that no item took yet
    for (size_t row = 0; row < lines_.size(); ++row) {
      const int32_t* const offsets = from.offsets + window_.begin + row;
      const int32_t* const end = from.col + offsets[1];
      for (const int32_t* col = std::lower_bound(from.col + offsets[0], end, window_.col);
           col != end && *col < window_.end_col; ++col) {
        const auto place = static_cast<int32_t>(col - from.col);
        numbers[row * wide + static_cast<size_t>(*col - window_.col)] =
            from.number ? from.number[place] : place;
      }
    }
    std::array<uint16_t, Columns::listed> listed;
    for (size_t item = 0; item < cols_.size(); ++item) {
      const auto [strip, first, count] = ranges[item];
      const std::span<const uint16_t> cols(listed.data(), cols_[item].list(listed.data()));
      std::transform(cols.begin(), cols.end(), to.cols.begin() + first,
                     [&](uint16_t col) { return window_.col + col; });
      for (size_t i = 0; i < strip_rows; ++i) {
        const auto row = static_cast<size_t>(rows_[item * strip_rows + i]);
        to.rows[static_cast<size_t>(strip) * strip_rows + i] =
            window_.begin + static_cast<int32_t>(row);
        int32_t* at = to.blocks.data() + static_cast<size_t>(first) * strip_rows + i;
        for (const uint16_t col : cols) {
          *at = std::exchange(numbers[row * wide + col], -1);
          at += strip_rows;
        }
      }
    }
  }

 private:
  Window window_;
  std::vector<Columns> lines_;
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

/// How many of some rows, 15 at most, have each column.
class SharedColumns {
 public:
  void add(const Columns& row) {
    Columns::Words carried = row.words;
    for (Columns::Words& digit : digits_) {
      const Columns::Words both = digit & carried;
      digit ^= carried;
      carried = both;
    }
  }
  /// The columns that most of so many rows have, `size` at most. Without a branch: which digit
  /// decides is not foreseen.
  Columns most(size_t rows, int size) const {
    Columns cols, equal{digits_[0] | digits_[1] | digits_[2] | digits_[3]};
    for (auto digit = static_cast<size_t>(std::bit_width(rows)); digit-- > 0;) {
      const Columns more{equal.words & digits_[digit]};
      const int have = more.size();
      const uint64_t fits = have <= size ? ~uint64_t{0} : 0;
      cols.words |= more.words & fits;
      equal.words = (equal.words & fits) ^ more.words;
      size -= have & static_cast<int>(fits);
    }
    equal.keep_first(size);
    cols.words |= equal.words;
    return cols;
  }

 private:
  std::array<Columns::Words, 4> digits_{};
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
    for (int seed = alike_.longest(); seed >= 0 && !spending_.is_over(); seed = alike_.longest())
      take(choose(seed));
  }

 private:
  std::span<const uint16_t> list(const Columns& cols) {
    uint16_t* const to = cols.list(listed_.data());
    std::fill_n(to, 8, static_cast<uint16_t>(alike_.none()));
    return {listed_.data(), static_cast<size_t>(round_up(to - listed_.data(), 8))};
  }
  /// Chooses rows: the seed, and those that have most of the columns that an item of the rows
  /// before them would have; of eight two at a time.
  /// @return the columns of the item
  Columns choose(int seed) {
    SharedColumns shared;
    auto others = alike_.left();
    const auto add = [&](int row) {
      chosen_.push_back(row);
      shared.add(left_[static_cast<size_t>(row)]);
      others.remove(row);
    };
    chosen_.clear();
    add(seed);
    for (size_t together = 1; chosen_.size() < rows_; together = std::max<size_t>(rows_ / 4, 1)) {
      typename AlikeRows<most_rows>::Counts had;
      alike_.count(list(chosen_.size() > 1 ? shared.most(chosen_.size(), most_)
                                           : left_[static_cast<size_t>(seed)]),
                   had);
      typename AlikeRows<most_rows>::Rows best;
      for (size_t i = 0; i < together && chosen_.size() < rows_; ++i) {
        if (best.first() < 0) had.keep_greatest(best = others);
        const int row = best.first();
        if (row < 0) return shared.most(chosen_.size(), most_);
        best.remove(row);
        add(row);
      }
    }
    return shared.most(rows_, most_);
  }
  void take(const Columns& cols) {
    typename AlikeRows<most_rows>::Rows rows;
    int blocks = 0;
    for (const int row : chosen_) {
      Columns& left = left_[static_cast<size_t>(row)];
      const Columns own{left.words & cols.words};
      left.words ^= own.words;
      const int taken = own.size();
      blocks += taken;
      alike_.shorten(row, taken);
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
  std::array<uint16_t, Columns::listed> listed_;
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
  std::vector<Window> windows;
  for (int row = 0; row < from.heads * from.rows; row += from.rows)
    for_windows(from.rows, most_height / block, [&](int begin, int end) {
      for_windows(from.cols, most_wide, [&](int col, int end_col) {
        windows.push_back({row + begin, row + end, col, end_col});
      });
    });
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
  for (const Window& of : windows) all->windows.emplace_back(*bits, of);
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

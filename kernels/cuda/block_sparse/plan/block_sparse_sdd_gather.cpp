#include <bs/kernels/cuda/block_sparse/plan/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_sdd_gather.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_tiles.h>
#include <bs/lib/team.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
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

/// The blocks of a window, of `most_rows` at most, that no item has yet.
template <int most_rows>
class Remaining {
 public:
  Remaining(const LayoutRows& from, const Window& window)
      : window_(window),
        lines_(static_cast<size_t>(window.end - window.begin)),
        rows_(window.end_col - window.col) {
    std::vector<std::span<const int32_t>> lines;
    size_t blocks = 0;
    for (int row = window.begin; row < window.end; ++row) {
      const std::span<const int32_t> line(from.col + from.offsets[row],
                                          from.col + from.offsets[row + 1]);
      const auto begin = std::lower_bound(line.begin(), line.end(), window.col);
      lines.emplace_back(begin, std::lower_bound(begin, line.end(), window.end_col));
      blocks += lines.back().size();
    }
    cols_.resize(blocks);
    numbers_.resize(blocks);
    size_t at = 0;
    for (size_t row = 0; row < lines.size(); ++row) {
      lines_[row] = {.first = at, .count = lines[row].size()};
      for (const int32_t& col : lines[row]) {
        const auto i = static_cast<int32_t>(&col - from.col);
        numbers_[at] = from.number ? from.number[i] : i;
        cols_[at++] = col - window.col;
        lines_[row].set.put(col - window.col);
        rows_.put(static_cast<int>(row), col - window.col);
      }
    }
    rows_.count();
  }

  const AlikeRows<most_rows>& rows() const { return rows_; }
  /// What a row has left.
  std::span<const int> list(int row) const {
    const Line& line = lines_[static_cast<size_t>(row)];
    return {cols_.data() + line.first, line.count};
  }
  const Columns& columns(int row) const { return lines_[static_cast<size_t>(row)].set; }
  int32_t row(int own) const { return window_.begin + own; }
  int32_t col(int own) const { return window_.col + own; }

  /// Takes what some rows have of some columns, which `list` has too: the numbers of the blocks go
  /// to `to`, [columns, stride]. Returns how many there are.
  size_t take(const std::vector<int>& rows, const Columns& cols, std::span<const int> list,
              size_t stride, int32_t* to) {
    typename AlikeRows<most_rows>::Rows all;
    for (const int row : rows) all.put(row);
    std::array<int32_t*, most_cols> place{};
    size_t count = 0;
    for (const int col : list) {
      rows_.take(all, col);
      place[static_cast<size_t>(col)] = to;
      to += stride;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      Line& line = lines_[static_cast<size_t>(rows[i])];
      int* const own = cols_.data() + line.first;
      int32_t* const numbers = numbers_.data() + line.first;
      size_t left = 0;
      int32_t nowhere;
      for (size_t j = 0; j < line.count; ++j) {  // without a branch, which none would foresee
        int32_t* const taken = place[static_cast<size_t>(own[j])];
        *(taken ? taken + i : &nowhere) = numbers[j];
        own[left] = own[j];
        numbers[left] = numbers[j];
        left += taken ? 0 : 1;
      }
      count += line.count - left;
      line.count = left;
      line.set.words &= ~cols.words;
      rows_.set_length(rows[i], left);
    }
    return count;
  }

 private:
  /// What a row has left: from cols_[first] on, and as a set.
  struct Line {
    size_t first = 0, count = 0;
    Columns set{};
  };

  Window window_;
  std::vector<Line> lines_;
  std::vector<int> cols_;
  std::vector<int32_t> numbers_;
  AlikeRows<most_rows> rows_;
};

/// What the items of all windows read, and the blocks that are left would in items without a hole.
class Spending {
 public:
  Spending(const GatherLimit& limit, int rows, int cols, int64_t blocks)
      : limit_(limit),
        least_(limit.of(cols) / (rows * cols)),
        spent_(least_ * static_cast<double>(blocks)) {}
  /// An item of so many columns and blocks. Others may be added at the same time.
  void add(int columns, size_t blocks) {
    spent_ += limit_.of(columns) - least_ * static_cast<double>(blocks);
  }
  bool is_over() const { return spent_ > limit_.most * (1 + 1e-9); }

 private:
  GatherLimit limit_;
  double least_;  // for a block
  std::atomic<double> spent_;
};

/// Cuts items out of what remains.
class Gatherer {
 public:
  Gatherer(int rows, int cols, Spending& spending)
      : rows_(static_cast<size_t>(rows)), most_(cols), spending_(spending) {}

  /// Appends items until nothing remains, or too much is spent.
  template <int most_rows>
  void empty(Remaining<most_rows> from, GatheredStrips& out) {
    for (int seed = from.rows().longest(); seed >= 0 && !spending_.is_over();
         seed = from.rows().longest()) {
      // The seed, and those that are most like what was chosen before them.
      chosen_.assign(1, seed);
      from.rows().extend(chosen_, rows_, [&](int row) { return from.list(row); });
      append(from, choose_cols(from), out);
    }
  }

 private:
  /// The columns that most of the rows have.
  template <int most_rows>
  Columns choose_cols(const Remaining<most_rows>& from) const {
    BitCounts<most_cols> had;
    had.add(chosen_.size(), [&](size_t i) -> const Columns& { return from.columns(chosen_[i]); });
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
  template <int most_rows>
  void append(Remaining<most_rows>& from, const Columns& set, GatheredStrips& out) {
    std::array<int, Columns::listed> list;
    const std::span<const int> cols(list.data(), set.list(list.data()));
    out.ranges.push_back({.strip = static_cast<int>(out.ranges.size()),
                          .first = static_cast<int>(out.cols.size()),
                          .count = static_cast<int>(cols.size())});
    // Where rows are fewer, the first one comes in their place, and is not written.
    for (size_t i = 0; i < rows_; ++i)
      out.rows.push_back(from.row(chosen_[i < chosen_.size() ? i : 0]));
    for (const int col : cols) out.cols.push_back(from.col(col));
    const size_t blocks = out.blocks.size();
    out.blocks.resize(blocks + cols.size() * rows_, -1);
    spending_.add(static_cast<int>(cols.size()),
                  from.take(chosen_, set, cols, rows_, out.blocks.data() + blocks));
  }

  size_t rows_;
  int most_;
  Spending& spending_;
  std::vector<int> chosen_;
};

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

void append(GatheredStrips& out, const GatheredStrips& part) {
  const auto strip = static_cast<int>(out.ranges.size());
  const auto first = static_cast<int>(out.cols.size());
  for (device::SddRange range : part.ranges) {
    range.strip += strip;
    range.first += first;
    out.ranges.push_back(range);
  }
  out.rows.insert(out.rows.end(), part.rows.begin(), part.rows.end());
  out.cols.insert(out.cols.end(), part.cols.begin(), part.cols.end());
  out.blocks.insert(out.blocks.end(), part.blocks.begin(), part.blocks.end());
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

std::optional<GatheredStrips> gather_sdd(const Layout& layout, bool transposed, int rows,
                                         int columns, int window, const GatherLimit& limit) {
  const int block = layout.block();
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  const std::vector<Window> windows =
      windows_of(from, block, std::clamp(window / block, 1, most_cols));
  std::vector<GatheredStrips> parts(windows.size());
  Spending spending(limit, rows / block, columns / block, layout.nnz());
  if (spending.is_over()) return {};
  parallel_each(std::ssize(windows), team_for(windows.size(), layout.nnz()), [&](int64_t number) {
    const auto i = static_cast<size_t>(number);
    Gatherer gatherer(rows / block, columns / block, spending);
    if (block == 16) gatherer.empty(Remaining<most_height / 16>(from, windows[i]), parts[i]);
    if (block == 32) gatherer.empty(Remaining<most_height / 32>(from, windows[i]), parts[i]);
    if (block == 64) gatherer.empty(Remaining<most_height / 64>(from, windows[i]), parts[i]);
  });
  if (spending.is_over()) return {};
  GatheredStrips out;
  if (parts.size() == 1) {
    out = std::move(parts[0]);
  } else {
    for (const GatheredStrips& part : parts) append(out, part);
  }
  out.strip_rows = rows / block;
  return out;
}

}  // namespace bs::cuda

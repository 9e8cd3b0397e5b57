#include <bs/kernels/cuda/block_sparse/plan/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse/plan/block_sparse_row_groups.h>
#include <bs/lib/team.h>

#include <algorithm>
#include <span>
#include <utility>
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
  const int parts = (strips + most - 1) / most;
  const auto part = [&](int i) { return static_cast<int>(int64_t{strips} * i / parts); };
  std::vector<Window> windows;
  for (int head = 0; head < heads; ++head)
    for (int i = 0; i < parts; ++i) windows.push_back({head, part(i), part(i + 1)});
  return windows;
}

/// The union of some rows.
class Union {
 public:
  explicit Union(int cols) : words_(static_cast<size_t>(cols) / 64 + 1) {}

  /// Adds a row; its columns that were not there yet.
  std::span<const int> add(std::span<const int32_t> row) {
    if (fresh_.size() < row.size()) fresh_.resize(row.size());
    size_t count = 0;
    for (const int32_t col : row) {  // without a branch, which none would foresee
      uint64_t& word = words_[static_cast<size_t>(col) / 64];
      fresh_[count] = col;
      count += static_cast<size_t>(~word >> col % 64 & 1);
      word |= uint64_t{1} << col % 64;
    }
    size_ += static_cast<int64_t>(count);
    return {fresh_.data(), count};
  }
  /// Empties it; how many columns it had.
  int64_t clear() {
    std::fill(words_.begin(), words_.end(), 0);
    return std::exchange(size_, 0);
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<int> fresh_;
  int64_t size_ = 0;
};

/// Groups the rows of one window, `most_rows` at most.
template <int most_rows>
class Grouper {
 public:
  Grouper(const LayoutRows& from, int side, const Window& window)
      : from_(from),
        side_(static_cast<size_t>(side)),
        window_(window),
        first_(window.begin * side),
        rows_(std::min(window.end * side, from.rows) - first_),
        left_(from.cols),
        all_(from.cols) {
    for (int row = 0; row < rows_; ++row)
      for (const int32_t col : columns(row)) left_.put(row, col);
    left_.count();
  }

  /// Writes the rows of all strips to `to`; returns the rest of what there is to say.
  RowGroups group(int32_t* to) {
    RowGroups found{.neighbours = neighbours()};
    std::vector<int> empty, chosen;
    for (int row = 0; row < rows_; ++row)
      if (columns(row).empty()) empty.push_back(row);
    for (int strip = window_.begin; strip < window_.end; ++strip) {
      choose(chosen);
      const int64_t size = all_.clear();
      found.entries += size;
      found.longest = std::max(found.longest, size);
      for (const int row : chosen) left_.remove(row);
      // Rows without a block are left, if any.
      for (; chosen.size() < side_ && !empty.empty(); empty.pop_back())
        chosen.push_back(empty.back());
      std::sort(chosen.begin(), chosen.end());
      for (size_t i = 0; i < side_; ++i)
        *to++ = i < chosen.size() ? first_ + chosen[i] : from_.rows;
    }
    return found;
  }

 private:
  int64_t neighbours() {
    int64_t entries = 0;
    for (int row = 0; row < rows_; ++row) {
      if (static_cast<size_t>(row) % side_ == 0) entries += all_.clear();
      all_.add(columns(row));
    }
    return entries + all_.clear();
  }
  std::span<const int32_t> columns(int row) const {
    const int32_t* const line = from_.offsets + window_.head * from_.rows + first_ + row;
    return {from_.col + line[0], from_.col + line[1]};
  }
  /// The rows of one strip, and their union.
  void choose(std::vector<int>& chosen) {
    chosen.clear();
    const int seed = left_.longest();
    if (seed < 0) return;
    chosen.push_back(seed);
    left_.extend(chosen, side_, [&](int row) { return all_.add(columns(row)); });
    all_.add(columns(chosen.back()));
  }

  LayoutRows from_;
  size_t side_;
  Window window_;
  int first_, rows_;
  AlikeRows<most_rows> left_;  // rows that are in no strip yet
  Union all_;
};

}  // namespace

RowGroups group_rows(const Layout& layout, bool transposed, int side) {
  const int block = layout.block();
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  const int strips = (from.rows + side - 1) / side;
  const int most = most_height / (side * block);
  const std::vector<Window> windows = windows_of(from.heads, strips, most);
  RowGroups groups{.side = side};
  groups.rows.resize(static_cast<size_t>(from.heads) * static_cast<size_t>(strips * side));
  std::vector<RowGroups> parts(windows.size());
  parallel_each(std::ssize(windows), team_for(windows.size(), layout.nnz()), [&](int64_t number) {
    const Window& window = windows[static_cast<size_t>(number)];
    int32_t* const to = groups.rows.data() + (int64_t{window.head} * strips + window.begin) * side;
    parts[static_cast<size_t>(number)] =
        block == 16   ? Grouper<most_height / 16>(from, side, window).group(to)
        : block == 32 ? Grouper<most_height / 32>(from, side, window).group(to)
                      : Grouper<most_height / 64>(from, side, window).group(to);
  });
  for (const RowGroups& part : parts) {
    groups.entries += part.entries;
    groups.neighbours += part.neighbours;
    groups.longest = std::max(groups.longest, part.longest);
  }
  if (groups.entries >= groups.neighbours) groups.rows.clear();
  groups.entries = std::min(groups.entries, groups.neighbours);
  return groups;
}

Kept<RowGroups> row_groups_of(const Layout& layout, bool transposed, int side) {
  struct Key {
    bool transposed;
    int side;
    bool operator==(const Key&) const = default;
  };
  return layout.derived<RowGroups>(Key{transposed, side},
                                   [&] { return group_rows(layout, transposed, side); });
}

int64_t gathered_columns(const RowGroups& groups, const StripUse& use) {
  // A line as short as a block takes as long as a whole one; a stage, of 64 / block columns, has as
  // many lines as the tile has columns.
  const int64_t more_lines = use.by_columns ? 128 / use.block - 128 / 64 : 0;
  const auto strips = static_cast<int64_t>(groups.rows.size()) / groups.side;
  return groups.entries + strips * more_lines * (64 / use.block);
}

bool groups_pay(const RowGroups& groups, const StripUse& use) {
  if (groups.rows.empty()) return false;
  const bool uneven = groups.longest * use.workers > 4 * groups.entries * use.times;
  const int64_t columns = gathered_columns(groups, use);
  return uneven ? 4 * columns <= 3 * groups.neighbours : columns < groups.neighbours;
}

}  // namespace bs::cuda

#include <bs/kernels/cuda/block_sparse_alike.h>
#include <bs/kernels/cuda/block_sparse_row_groups.h>
#include <bs/kernels/cuda/block_sparse_strips.h>

#include <algorithm>
#include <bit>
#include <numeric>

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

/// The columns of the rows of a window, a bit each.
class RowBits {
 public:
  RowBits(const LayoutRows& from, int first, int count)
      : words_(static_cast<size_t>(from.cols) / 64 + 1),
        bits_(words_ * static_cast<size_t>(count)),
        lengths_(static_cast<size_t>(count)) {
    for (size_t row = 0; row < lengths_.size(); ++row) {
      const int32_t* const line = from.offsets + first + row;
      lengths_[row] = line[1] - line[0];
      for (int32_t i = line[0]; i < line[1]; ++i)
        bits_[row * words_ + static_cast<size_t>(from.col[i]) / 64] |= uint64_t{1}
                                                                       << from.col[i] % 64;
    }
  }

  int rows() const { return static_cast<int>(lengths_.size()); }
  size_t words() const { return words_; }
  const uint64_t* operator[](int row) const {
    return bits_.data() + static_cast<size_t>(row) * words_;
  }
  /// Columns of a row that is in no strip yet.
  int length(int row) const { return lengths_[static_cast<size_t>(row)]; }
  void take(int row) { lengths_[static_cast<size_t>(row)] = 0; }
  int longest() const {
    return static_cast<int>(std::max_element(lengths_.begin(), lengths_.end()) - lengths_.begin());
  }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;
  std::vector<int> lengths_;
};

/// The union of some rows.
class Union {
 public:
  explicit Union(size_t words) : words_(words), fresh_(words) {}
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  /// Those of a row that were not there yet.
  const std::vector<uint64_t>& add(const uint64_t* row) {
    for (size_t w = 0; w < words_.size(); ++w) {
      fresh_[w] = row[w] & ~words_[w];
      words_[w] |= row[w];
    }
    return fresh_;
  }
  int64_t size() const {
    return std::accumulate(words_.begin(), words_.end(), int64_t{0},
                           [](int64_t sum, uint64_t word) { return sum + std::popcount(word); });
  }

 private:
  std::vector<uint64_t> words_, fresh_;
};

int in_common(const std::vector<uint64_t>& x, const uint64_t* y) {
  int sum = 0;
  for (size_t w = 0; w < x.size(); ++w) sum += std::popcount(x[w] & y[w]);
  return sum;
}

/// Groups the rows of windows, one at a time.
class Grouper {
 public:
  Grouper(const LayoutRows& from, int side) : from_(from), side_(side) {}

  /// Writes the rows of a window's strips to `to`; returns the rest of what there is to say.
  RowGroups group(const Window& window, int32_t* to) {
    const int first = window.begin * side_, end = std::min(window.end * side_, from_.rows);
    RowBits bits(from_, window.head * from_.rows + first, end - first);
    Union all(bits.words());
    RowGroups found;
    for (int row = 0; row < bits.rows(); ++row) {
      all.add(bits[row]);
      if ((row + 1) % side_ != 0 && row + 1 < bits.rows()) continue;
      found.neighbours += all.size();
      all.clear();
    }
    std::vector<int> empty;
    for (int row = 0; row < bits.rows(); ++row)
      if (bits.length(row) == 0) empty.push_back(row);
    const auto side = static_cast<size_t>(side_);
    for (int strip = window.begin; strip < window.end; ++strip) {
      choose(bits, all);
      const int64_t size = all.size();
      found.entries += size;
      found.longest = std::max(found.longest, size);
      all.clear();
      for (const int row : chosen_) bits.take(row);
      // Rows without a block are left, if any.
      for (; chosen_.size() < side && !empty.empty(); empty.pop_back())
        chosen_.push_back(empty.back());
      std::sort(chosen_.begin(), chosen_.end());
      for (size_t i = 0; i < side; ++i)
        *to++ = i < chosen_.size() ? first + chosen_[i] : from_.rows;
    }
    return found;
  }

 private:
  /// The rows of one strip, and their union.
  void choose(const RowBits& bits, Union& all) {
    chosen_.clear();
    const int seed = bits.longest();
    if (bits.length(seed) == 0) return;
    chosen_.push_back(seed);
    alike_.extend(
        chosen_, static_cast<size_t>(side_), bits.rows(), [&](int row) { return bits.length(row); },
        [&](int row) {
          return [&bits, &fresh = all.add(bits[row])](int other) {
            return in_common(fresh, bits[other]);
          };
        });
    all.add(bits[chosen_.back()]);
  }

  LayoutRows from_;
  int side_;
  AlikeRows alike_;
  std::vector<int> chosen_;
};

}  // namespace

RowGroups group_rows(const Layout& layout, bool transposed, int side) {
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  const int strips = (from.rows + side - 1) / side;
  const int most = std::max(1, most_height / (side * layout.block()));
  const std::vector<Window> windows = windows_of(from.heads, strips, most);
  RowGroups groups{.side = side};
  groups.rows.resize(static_cast<size_t>(from.heads) * static_cast<size_t>(strips * side));
  int64_t entries = 0, neighbours = 0, longest = 0;
#pragma omp parallel for schedule(dynamic) reduction(+ : entries, neighbours) \
    reduction(max : longest) if (windows.size() > 1)
  for (size_t i = 0; i < windows.size(); ++i) {
    const int64_t first = int64_t{windows[i].head} * strips + windows[i].begin;
    const RowGroups found =
        Grouper(from, side).group(windows[i], groups.rows.data() + first * side);
    entries += found.entries;
    neighbours += found.neighbours;
    longest = std::max(longest, found.longest);
  }
  groups.entries = std::min(entries, neighbours);
  groups.neighbours = neighbours;
  groups.longest = longest;
  if (entries >= neighbours) groups.rows.clear();
  return groups;
}

const RowGroups& row_groups_of(const Layout& layout, bool transposed, int side) {
  const auto key =
      static_cast<uint64_t>(side) | static_cast<uint64_t>(transposed) << 8 | uint64_t{1} << 10;
  return layout.derived<RowGroups>(key, [&] { return group_rows(layout, transposed, side); });
}

bool groups_pay(const RowGroups& groups, const StripUse& use) {
  if (groups.rows.empty()) return false;
  // A line as short as a block takes as long as a whole one; a stage, of 64 / block columns, has as
  // many lines as the tile has columns.
  const int64_t more_lines = use.by_columns ? 128 / use.block - 128 / 64 : 0;
  const auto strips = static_cast<int64_t>(groups.rows.size()) / groups.side;
  const int64_t entries = groups.entries + strips * more_lines * (64 / use.block);
  const bool uneven = groups.longest * use.workers > groups.entries * use.times;
  return 100 * entries <= (uneven ? 75 : 97) * groups.neighbours;
}

}  // namespace bs::cuda

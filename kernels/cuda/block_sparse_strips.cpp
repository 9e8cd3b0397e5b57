#include <bs/kernels/cuda/block_sparse_strips.h>
#include <bs/kernels/cuda/block_sparse_strips_fill.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

namespace bs::cuda {

namespace {

/// The union of the columns of some rows: a bit a column, and the columns before each word.
class Union {
 public:
  explicit Union(int cols) : words_(static_cast<size_t>(cols) / 64 + 1), before_(words_.size()) {}

  /// The columns of rows [begin, end) of all heads.
  void gather(const LayoutRows& from, int begin, int end) {
    std::fill(words_.begin(), words_.end(), 0);
    for (int32_t i = from.offsets[begin]; i < from.offsets[end]; ++i)
      words_[static_cast<size_t>(from.col[i]) / 64] |= uint64_t{1} << from.col[i] % 64;
    int at = 0;
    for (size_t w = 0; w < words_.size(); ++w) {
      before_[w] = at;
      at += std::popcount(words_[w]);
    }
  }

  int size() const { return before_.back() + std::popcount(words_.back()); }
  int rank(int32_t col) const {
    const auto w = static_cast<size_t>(col) / 64;
    return before_[w] + std::popcount(words_[w] & ((uint64_t{1} << col % 64) - 1));
  }
  int32_t* copy(int32_t* to) const {
    for (size_t w = 0; w < words_.size(); ++w)
      for (uint64_t left = words_[w]; left != 0; left &= left - 1)
        *to++ = static_cast<int32_t>(w * 64) + std::countr_zero(left);
    return to;
  }

 private:
  std::vector<uint64_t> words_;
  std::vector<int> before_;
};

/// The rows of a strip, over all heads.
struct StripRows {
  int begin, end;

  StripRows(const LayoutRows& from, int rows, int head, int strip)
      : begin(head * from.rows + std::min(strip * rows, from.rows)),
        end(head * from.rows + std::min((strip + 1) * rows, from.rows)) {}
};

/// Where each strip's columns begin, and after the last strip their count.
std::vector<int32_t> strip_offsets(const LayoutRows& from, int rows, int strips) {
  std::vector<int32_t> offsets{0};
  Union columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips; ++strip) {
      const StripRows of(from, rows, head, strip);
      int size = from.offsets[of.end] - from.offsets[of.begin];
      if (rows > 1) {
        columns.gather(from, of.begin, of.end);
        size = columns.size();
      }
      offsets.push_back(offsets.back() + size);
    }
  return offsets;
}

/// Fills in the columns of every strip, and the blocks of its rows there.
void fill_strips(const LayoutRows& from, int rows, int strips, int32_t entries, int32_t* cols,
                 int32_t* blocks) {
  std::fill_n(blocks, static_cast<int64_t>(entries) * rows, -1);
  Union columns(from.cols);
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips; ++strip) {
      const StripRows of(from, rows, head, strip);
      columns.gather(from, of.begin, of.end);
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

BlockSparseStrips::BlockSparseStrips(const Layout& layout, bool transposed, int rows,
                                     Device device) {
  const LayoutRows from(layout.view(Device::cpu()), transposed);
  list.strips = (from.rows + rows - 1) / rows;
  offsets = strip_offsets(from, rows, list.strips);
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
    fill_strips(from, rows, list.strips, offsets.back(), cols, cols + entries);
  } else if (from.cols <= most_filled_cols) {
    fill_strips(layout.view(device), {transposed, rows, list.strips}, list.offsets, cols,
                cols + entries, current_stream(device));
  } else {
    const BlockSparseStrips host(layout, transposed, rows, Device::cpu());
    copy_bytes(host.columns, columns);
  }
  list.cols = cols;
  list.blocks = cols + entries;
  made = Milestone(current_stream(device));
}

const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, Device device) {
  const auto key = static_cast<uint64_t>(rows) | static_cast<uint64_t>(transposed) << 8 |
                   static_cast<uint64_t>(device.index()) << 16;
  const auto& strips = layout.derived<BlockSparseStrips>(
      key, [&] { return BlockSparseStrips(layout, transposed, rows, device); });
  strips.made.wait(current_stream(device));
  return strips;
}

}  // namespace bs::cuda

#include <bs/kernels/cuda/block_sparse_strips.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace bs::cuda {

namespace {

/// The rows of op(S), whatever order they are stored in.
struct Rows {
  const int32_t* offsets;
  const int32_t* col;
  const int32_t* number;  ///< null: blocks are numbered in this order
  int heads, rows;

  Rows(const LayoutView& v, bool transposed)
      : offsets(transposed ? v.col_offsets : v.row_offsets),
        col(transposed ? v.transposed_row : v.col_of),
        number(transposed ? v.transposed : nullptr),
        heads(v.heads),
        rows(transposed ? v.cols : v.rows) {}
};

struct Lists {
  std::vector<int32_t> offsets{0}, cols, blocks, order, work;
};

/// Appends the union of the columns of rows [first, end) of all heads, `rows` to a strip.
void add_strip(const Rows& from, int first, int end, int rows, Lists& to) {
  std::vector<int32_t> at(from.offsets + first, from.offsets + end);
  while (true) {
    int32_t next = INT32_MAX;
    for (size_t r = 0; r < at.size(); ++r)
      if (at[r] < from.offsets[first + static_cast<int>(r) + 1])
        next = std::min(next, from.col[at[r]]);
    if (next == INT32_MAX) break;
    to.cols.push_back(next);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      const bool has = r < at.size() && at[r] < from.offsets[first + static_cast<int>(r) + 1] &&
                       from.col[at[r]] == next;
      to.blocks.push_back(!has ? -1 : from.number ? from.number[at[r]] : at[r]);
      if (has) ++at[r];
    }
  }
  to.offsets.push_back(static_cast<int32_t>(to.cols.size()));
}

Lists make_lists(const Rows& from, int strips, int rows, int cols) {
  Lists lists;
  for (int head = 0; head < from.heads; ++head)
    for (int strip = 0; strip < strips; ++strip) {
      const int first = strip * rows;
      add_strip(from, head * from.rows + first,
                head * from.rows + std::min(first + rows, from.rows), rows, lists);
    }
  const auto length = [&](int32_t strip) {
    const auto s = static_cast<size_t>(strip);
    return lists.offsets[s + 1] - lists.offsets[s];
  };
  lists.order.resize(lists.offsets.size() - 1);
  std::iota(lists.order.begin(), lists.order.end(), 0);
  for (auto begin = lists.order.begin(); begin != lists.order.end(); begin += strips)
    std::stable_sort(begin, begin + strips,
                     [&](int32_t a, int32_t b) { return length(a) > length(b); });
  if (cols > 0)
    for (size_t strip = 0; strip + 1 < lists.offsets.size(); ++strip)
      for (int32_t first = lists.offsets[strip]; first < lists.offsets[strip + 1]; first += cols) {
        lists.work.push_back(static_cast<int32_t>(strip));
        lists.work.push_back(first);
      }
  return lists;
}

}  // namespace

BlockSparseStrips::BlockSparseStrips(const Layout& layout, bool transposed, int rows, int cols,
                                     Device device) {
  const Rows from(layout.view(Device::cpu()), transposed);
  const int strips = (from.rows + rows - 1) / rows;
  const Lists lists = make_lists(from, strips, rows, cols);
  struct Part {
    const std::vector<int32_t>* values;
    const int** pointer;
  };
  const Part parts[] = {{&lists.offsets, &list.offsets},
                        {&lists.cols, &list.cols},
                        {&lists.blocks, &list.blocks},
                        {&lists.order, &list.order},
                        {&lists.work, &work}};
  int64_t size = 0;
  for (const Part& part : parts) size += static_cast<int64_t>(part.values->size());
  const Tensor host = Tensor::empty({size}, i32);
  int32_t* to = host.data<int32_t>();
  for (const Part& part : parts) to = std::copy(part.values->begin(), part.values->end(), to);
  packed = host.to(device);
  const int32_t* at = packed.data<int32_t>();
  for (const Part& part : parts) {
    *part.pointer = at;
    at += part.values->size();
  }
  list.strips = strips;
  works = static_cast<int>(lists.work.size() / 2);
}

const BlockSparseStrips& strips_of(const Layout& layout, bool transposed, int rows, int cols,
                                   Device device) {
  const auto key = static_cast<uint64_t>(rows) | static_cast<uint64_t>(cols) << 8 |
                   static_cast<uint64_t>(transposed) << 20 |
                   static_cast<uint64_t>(device.index()) << 24;
  return layout.derived<BlockSparseStrips>(
      key, [&] { return BlockSparseStrips(layout, transposed, rows, cols, device); });
}

}  // namespace bs::cuda

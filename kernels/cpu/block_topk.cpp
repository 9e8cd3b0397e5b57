#include <bs/kernels/block_topk.h>
#include <bs/kernels/cpu/convert.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace bs::cpu {

namespace {

/// A number in the order of preference; different for every column.
uint64_t rank_of(float score, int64_t col, bool always) {
  uint64_t order = 0;  // NaN
  if (always) {
    order = ~uint32_t{0};
  } else if (!std::isnan(score)) {
    const auto bits = std::bit_cast<uint32_t>(score == 0 ? 0.0F : score);
    order = bits >> 31 ? ~bits : bits | 0x80000000U;
  }
  return order << 32 | (~uint32_t{0} - static_cast<uint32_t>(col));
}

int64_t seen_columns(const BlockTopkOptions& o, int64_t row, int64_t cols) {
  return o.causal ? std::min(row + 1, cols) : cols;
}

template <class T>
struct Rows {
  const T* scores;
  int64_t rows, cols;
  const BlockTopkOptions& options;

  /// Lists `count` columns of a row. `ranks` has room for two numbers a column.
  void list(int64_t line, int64_t count, uint64_t* ranks, int32_t* to) const {
    const int64_t row = line % rows, seen = seen_columns(options, row, cols);
    for (int64_t col = 0; col < seen; ++col) {
      const bool local = col <= row && col > row - options.local_blocks;
      ranks[col] = rank_of(convert<float>(scores[line * cols + col]), col,
                           local || col < options.first_blocks);
    }
    uint64_t* const order = ranks + cols;
    std::copy_n(ranks, seen, order);
    uint64_t* const last = order + count - 1;
    std::nth_element(order, last, order + seen, std::greater<>());
    for (int64_t col = 0; col < seen; ++col)
      if (ranks[col] >= *last) *to++ = static_cast<int32_t>(col);
  }
};

}  // namespace

void block_topk(const Tensor& scores, int k, const BlockTopkOptions& o, const LayoutArrays& arrays,
                Stream) {
  const LayoutView& v = arrays.view;
  const int64_t lines = int64_t{v.heads} * v.rows, cols = v.cols;
  int32_t* const offsets = arrays.writable(v.row_offsets);
  int32_t* const columns = arrays.writable(v.col_of);
  offsets[0] = 0;
  for (int64_t line = 0; line < lines; ++line) {
    const auto count =
        static_cast<int32_t>(std::min<int64_t>(k, seen_columns(o, line % v.rows, cols)));
    offsets[line + 1] = offsets[line] + count;
    std::fill_n(arrays.writable(v.head_of) + offsets[line], count,
                static_cast<int32_t>(line / v.rows));
    std::fill_n(arrays.writable(v.row_of) + offsets[line], count,
                static_cast<int32_t>(line % v.rows));
  }
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1));
  visit_floating("block_topk", scores.dtype(), [&]<class T>(Type<T>) {
    const Rows<T> rows{scores.data<T>(), v.rows, cols, o};
    parallel_for(lines, grain, [&](int64_t begin, int64_t end) {
      const Tensor ranks = Tensor::empty({2 * cols}, i64);
      for (int64_t line = begin; line < end; ++line)
        if (const int64_t count = offsets[line + 1] - offsets[line]; count > 0)
          rows.list(line, count, static_cast<uint64_t*>(ranks.data()), columns + offsets[line]);
    });
  });
}

}  // namespace bs::cpu

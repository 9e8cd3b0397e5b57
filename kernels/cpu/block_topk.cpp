#include <bs/kernels/block_topk.h>
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

struct Rows {
  const float* scores;
  int64_t rows, cols;
  const BlockTopkOptions& options;

  int64_t seen(int64_t row) const { return options.causal ? std::min(row + 1, cols) : cols; }

  /// Lists `count` columns of a row. `ranks` has room for two numbers a column.
  void list(int64_t line, int64_t count, uint64_t* ranks, int32_t* to) const {
    const int64_t row = line % rows;
    for (int64_t col = 0; col < seen(row); ++col) {
      const bool local = col <= row && col > row - options.local_blocks;
      ranks[col] = rank_of(scores[line * cols + col], col, local || col < options.first_blocks);
    }
    uint64_t* const order = ranks + cols;
    std::copy_n(ranks, seen(row), order);
    uint64_t* const last = order + count - 1;
    std::nth_element(order, last, order + seen(row), std::greater<>());
    for (int64_t col = 0; col < seen(row); ++col)
      if (ranks[col] >= *last) *to++ = static_cast<int32_t>(col);
  }
};

}  // namespace

void block_topk(const Tensor& scores, int k, const BlockTopkOptions& o, const Tensor& row_offsets,
                const Tensor& columns, Stream) {
  const int64_t lines = scores.size(0) * scores.size(1), cols = scores.size(2);
  const Rows rows{scores.data<float>(), scores.size(1), cols, o};
  int32_t* const offsets = row_offsets.data<int32_t>();
  offsets[0] = 0;
  for (int64_t line = 0; line < lines; ++line)
    offsets[line + 1] =
        offsets[line] + static_cast<int32_t>(std::min<int64_t>(k, rows.seen(line % rows.rows)));
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1));
  parallel_for(lines, grain, [&](int64_t begin, int64_t end) {
    const Tensor ranks = Tensor::empty({2 * cols}, i64);
    for (int64_t line = begin; line < end; ++line)
      if (const int64_t count = offsets[line + 1] - offsets[line]; count > 0)
        rows.list(line, count, static_cast<uint64_t*>(ranks.data()),
                  columns.data<int32_t>() + offsets[line]);
  });
}

}  // namespace bs::cpu

#include <bs/kernels/block_topk.h>
#include <bs/kernels/cpu/parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

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

}  // namespace

void block_topk(const Tensor& scores, int k, const BlockTopkOptions& o, const Tensor& row_offsets,
                const Tensor& columns, Stream) {
  const int64_t rows = scores.size(1), cols = scores.size(2), lines = scores.size(0) * rows;
  int32_t* const offsets = row_offsets.data<int32_t>();
  const auto seen = [&](int64_t row) { return o.causal ? std::min(row + 1, cols) : cols; };
  offsets[0] = 0;
  for (int64_t line = 0; line < lines; ++line)
    offsets[line + 1] =
        offsets[line] + static_cast<int32_t>(std::min<int64_t>(k, seen(line % rows)));
  const float* const from = scores.data<float>();
  parallel_for(lines, std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1)),
               [&](int64_t begin, int64_t end) {
                 std::vector<uint64_t> ranks(static_cast<size_t>(cols)), order;
                 for (int64_t line = begin; line < end; ++line) {
                   const int64_t row = line % rows, count = offsets[line + 1] - offsets[line];
                   if (count == 0) continue;
                   for (int64_t col = 0; col < seen(row); ++col) {
                     const bool local = col <= row && col > row - o.local_blocks;
                     ranks[static_cast<size_t>(col)] =
                         rank_of(from[line * cols + col], col, local || col < o.first_blocks);
                   }
                   order.assign(ranks.begin(), ranks.begin() + seen(row));
                   const auto last = order.begin() + (count - 1);
                   std::nth_element(order.begin(), last, order.end(), std::greater<>());
                   int32_t* to = columns.data<int32_t>() + offsets[line];
                   for (int64_t col = 0; col < seen(row); ++col)
                     if (ranks[static_cast<size_t>(col)] >= *last)
                       *to++ = static_cast<int32_t>(col);
                 }
               });
}

}  // namespace bs::cpu

#include <bs/kernels/block_topk.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

// A warp has a row. It finds the lowest order that is kept bit by bit, counting how many columns
// reach it, and then lists what is kept in the order of columns.

namespace {

constexpr int threads = 128;
constexpr unsigned all_lanes = ~0U;

struct Scores {
  const float* data;
  int64_t lines;
  int rows, cols, k, first_blocks, local_blocks;
  bool causal;

  /// A number in the order of preference: NaN last, -0 as 0.
  __device__ uint32_t order(int64_t line, int row, int col) const {
    if (col < first_blocks || (col <= row && col > int64_t{row} - local_blocks)) return ~0U;
    const float score = data[line * cols + col];
    if (score != score) return 0;
    const uint32_t bits = __float_as_uint(score == 0 ? 0.0F : score);
    return bits >> 31 ? ~bits : bits | 0x80000000U;
  }
};

__global__ void __launch_bounds__(threads)
    topk_kernel(Scores s, int32_t* row_offsets, int32_t* columns) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned before = (1U << lane) - 1;
  const int64_t step = int64_t{gridDim.x} * (threads / 32);
  const int64_t of_head = detail::topk_blocks(s.rows, s.cols, s.k, s.causal);
  for (int64_t line = int64_t{blockIdx.x} * (threads / 32) + threadIdx.x / 32; line < s.lines;
       line += step) {
    const int row = static_cast<int>(line % s.rows);
    const int seen = s.causal ? min(row + 1, s.cols) : s.cols, kept = min(s.k, seen);
    const int64_t begin = line / s.rows * of_head + detail::topk_blocks(row, s.cols, s.k, s.causal);
    if (lane == 0) {
      row_offsets[line] = static_cast<int32_t>(begin);
      if (line == s.lines - 1) row_offsets[s.lines] = static_cast<int32_t>(begin + kept);
    }
    const auto count = [&](auto&& wanted) {
      unsigned found = 0;
      for (int col = static_cast<int>(lane); col < seen; col += 32)
        found += wanted(s.order(line, row, col));
      return static_cast<int>(__reduce_add_sync(all_lanes, found));
    };
    uint32_t lowest = 0;
    for (int bit = 31; bit >= 0; --bit) {
      const uint32_t higher = lowest | 1U << bit;
      if (count([=](uint32_t order) { return order >= higher; }) >= kept) lowest = higher;
    }
    int equals = kept - count([=](uint32_t order) { return order > lowest; });
    int32_t* to = columns + begin;
    for (int first = 0; first < seen; first += 32) {
      const int col = first + static_cast<int>(lane);
      const uint32_t order = col < seen ? s.order(line, row, col) : 0;
      const bool equal = col < seen && order == lowest;
      const unsigned alike = __ballot_sync(all_lanes, equal);
      const bool taken =
          (col < seen && order > lowest) || (equal && __popc(alike & before) < equals);
      const unsigned listed = __ballot_sync(all_lanes, taken);
      if (taken) to[__popc(listed & before)] = col;
      to += __popc(listed);
      equals -= min(equals, __popc(alike));
    }
  }
}

/// A layout without rows has one offset.
__global__ void empty_kernel(int32_t* row_offsets) { row_offsets[0] = 0; }

}  // namespace

void block_topk(const Tensor& scores, int k, const BlockTopkOptions& o, const Tensor& row_offsets,
                const Tensor& columns, Stream stream) {
  const int64_t lines = scores.size(0) * scores.size(1);
  if (lines == 0) {
    empty_kernel<<<1, 1, 0, native(stream)>>>(row_offsets.data<int32_t>());
  } else {
    const Scores s{.data = scores.data<float>(),
                   .lines = lines,
                   .rows = static_cast<int>(scores.size(1)),
                   .cols = static_cast<int>(scores.size(2)),
                   .k = k,
                   .first_blocks = o.first_blocks,
                   .local_blocks = o.local_blocks,
                   .causal = o.causal};
    topk_kernel<<<grid_size(lines * 32, threads, scores.device(), 16), threads, 0,
                  native(stream)>>>(s, row_offsets.data<int32_t>(), columns.data<int32_t>());
  }
  BS_CUDA_CHECK_LAUNCH("block_topk");
}

}  // namespace bs::cuda

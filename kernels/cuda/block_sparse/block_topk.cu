#include <bs/kernels/block_topk.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/block_sparse/listed_blocks.cuh>
#include <bs/kernels/cuda/order/sort_key.cuh>

namespace bs::cuda {

// A warp has a row, whose scores it keeps as keys in registers unless the row is long. It finds the
// lowest key that is kept bit by bit, counting how many columns reach it, and then lists what is
// kept in the order of columns.

namespace {

constexpr int threads = 128, warp = 32;
constexpr unsigned all_lanes = ~0U;

template <class T>
struct Scores {
  const T* data;
  int64_t lines;
  int rows, cols, k, first_blocks, local_blocks;
  bool causal;
  int spare_bits;  ///< of a key, which tell no two scores apart

  /// A number in the order of preference: NaN last, -0 as 0. It is 0 for what isn't seen alone.
  __device__ uint32_t key(int64_t line, int row, int col, int seen) const {
    if (col >= seen) return 0;
    if (col < first_blocks || (col <= row && col > int64_t{row} - local_blocks))
      return ~0U >> spare_bits;
    const auto score = static_cast<float>(device::widen(data[line * cols + col]));
    if (score != score) return 1;
    const uint32_t bits = __float_as_uint(score == 0 ? 0.0F : score);
    return (bits >> 31 ? ~bits : bits | 0x80000000U) >> spare_bits;
  }
};

/// Rows of up to 32 times `held` columns; of any length with none held.
template <class T, int held>
__global__ void __launch_bounds__(threads)
    topk_kernel(Scores<T> s, int32_t* row_offsets, ListedBlocks blocks) {
  const unsigned before = (1U << threadIdx.x % warp) - 1;
  const auto lane = static_cast<int>(threadIdx.x % warp);
  const int64_t step = int64_t{gridDim.x} * (threads / warp);
  const int64_t of_head = detail::topk_blocks(s.rows, s.cols, s.k, s.causal);
  for (int64_t line = int64_t{blockIdx.x} * (threads / warp) + threadIdx.x / warp; line < s.lines;
       line += step) {
    const int head = static_cast<int>(line / s.rows), row = static_cast<int>(line % s.rows);
    const int seen = s.causal ? min(row + 1, s.cols) : s.cols, kept = min(s.k, seen);
    const int64_t begin = head * of_head + detail::topk_blocks(row, s.cols, s.k, s.causal);
    if (lane == 0) {
      row_offsets[line] = static_cast<int32_t>(begin);
      if (line == s.lines - 1) row_offsets[s.lines] = static_cast<int32_t>(begin + kept);
    }
    uint32_t keys[held > 0 ? held : 1];
    if constexpr (held > 0) {
#pragma unroll
      for (int i = 0; i < held; ++i) keys[i] = s.key(line, row, i * warp + lane, seen);
    }
    // Calls f(first column, key) for every 32 columns.
    const auto for_each = [&](auto&& f) {
      if constexpr (held > 0) {
#pragma unroll
        for (int i = 0; i < held; ++i) f(i * warp, keys[i]);
      } else {
#pragma unroll 1
        for (int first = 0; first < seen; first += warp)
          f(first, s.key(line, row, first + lane, seen));
      }
    };
    const auto count = [&](auto&& wanted) {
      unsigned found = 0;
      for_each([&](int, uint32_t key) { found += wanted(key); });
      return static_cast<int>(__reduce_add_sync(all_lanes, found));
    };
    uint32_t lowest = 0;
    int reached = seen;
    for (int bit = 31 - s.spare_bits; bit >= 0 && reached > kept; --bit) {
      const uint32_t higher = lowest | 1U << bit;
      const int reach = count([=](uint32_t key) { return key >= higher; });
      if (reach < kept) continue;
      lowest = higher;
      reached = reach;
    }
    // If more reach the lowest key than are kept, then it is a key of several columns.
    int equals = reached == kept ? kept : kept - count([=](uint32_t key) { return key > lowest; });
    int64_t next = begin;
    for_each([&](int first, uint32_t key) {
      const bool equal = key == lowest && key > 0;
      const unsigned alike = __ballot_sync(all_lanes, equal);
      const bool taken = key > lowest || (equal && __popc(alike & before) < equals);
      const unsigned listed = __ballot_sync(all_lanes, taken);
      if (taken) blocks.list(next + __popc(listed & before), head, row, first + lane);
      next += __popc(listed);
      equals -= min(equals, __popc(alike));
    });
  }
}

/// Calls f with the keys that a lane holds of a row.
template <class F>
void visit_held(int64_t cols, F&& f) {
  if (cols <= 2 * warp) return f(std::integral_constant<int, 2>{});
  if (cols <= 4 * warp) return f(std::integral_constant<int, 4>{});
  if (cols <= 8 * warp) return f(std::integral_constant<int, 8>{});
  if (cols <= 16 * warp) return f(std::integral_constant<int, 16>{});
  if (cols <= 32 * warp) return f(std::integral_constant<int, 32>{});
  f(std::integral_constant<int, 0>{});
}

/// A layout without rows has one offset.
__global__ void empty_kernel(int32_t* row_offsets) { row_offsets[0] = 0; }

}  // namespace

void block_topk(const Tensor& scores, int k, const BlockTopkOptions& o, const LayoutArrays& arrays,
                Stream stream) {
  const LayoutView& v = arrays.view;
  const int64_t lines = int64_t{v.heads} * v.rows;
  int32_t* const row_offsets = arrays.writable(v.row_offsets);
  if (lines == 0) {
    empty_kernel<<<1, 1, 0, native(stream)>>>(row_offsets);
    return BS_CUDA_CHECK_LAUNCH("block_topk");
  }
  visit_floating("block_topk", scores.dtype(), [&]<class T>(Type<T>) {
    const Scores<device_type<T>> s{.data = pointer<T>(scores),
                                   .lines = lines,
                                   .rows = v.rows,
                                   .cols = v.cols,
                                   .k = k,
                                   .first_blocks = o.first_blocks,
                                   .local_blocks = o.local_blocks,
                                   .causal = o.causal,
                                   .spare_bits = lowest_key_bit(scores.dtype())};
    visit_held(v.cols, [&]<int held>(std::integral_constant<int, held>) {
      topk_kernel<device_type<T>, held>
          <<<grid_size(lines * warp, threads, scores.device(), 16), threads, 0, native(stream)>>>(
              s, row_offsets, ListedBlocks(arrays));
    });
  });
  BS_CUDA_CHECK_LAUNCH("block_topk");
}

}  // namespace bs::cuda

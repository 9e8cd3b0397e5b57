#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/block_sparse/listed_blocks.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/scan_threads.cuh>

#include <algorithm>

namespace bs::cuda {

// A warp counts the blocks of a row, and a block of threads sums up those of a group of rows. As
// the groups before it tell where each begins, the same warps then list their columns.

namespace {

constexpr int warp = 32, threads = 256;
constexpr unsigned all_lanes = 0xffffffffU;

/// A mask in groups of rows.
struct Mask {
  const uint8_t* kept;
  int64_t lines, cols;
  int64_t group;  ///< lines of one
  int rows, nnz;  ///< of a head, of the layout

  __device__ int64_t first() const { return blockIdx.x * group; }
  __device__ int64_t end() const { return min(first() + group, lines); }
};

/// Calls f(first column, flag of each) for all columns of a line, N neighbours a lane.
template <int N, class F>
__device__ void for_each_column(const Mask& mask, int64_t line, F&& f) {
  const uint8_t* const from = mask.kept + line * mask.cols;
#pragma unroll 4
  for (int64_t first = 0; first < mask.cols; first += warp * N) {
    const int64_t column = first + threadIdx.x % warp * N;
    bool flags[N] = {};
    if (column < mask.cols) {
      if constexpr (N == 4) {
        const uchar4 four = *reinterpret_cast<const uchar4*>(from + column);
        flags[0] = four.x != 0;
        flags[1] = four.y != 0;
        flags[2] = four.z != 0;
        flags[3] = four.w != 0;
      } else {
        flags[0] = from[column] != 0;
      }
    }
    f(static_cast<int>(column), flags);
  }
}

/// Counts, summed up within groups: to where each row begins in its group, and to groups' totals.
template <int N>
__global__ void __launch_bounds__(threads)
    count_kernel(const __grid_constant__ Mask mask, int32_t* row_offsets, int32_t* totals) {
  let_next_launch_begin();
  for (int64_t line = mask.first() + threadIdx.x / warp; line < mask.end();
       line += threads / warp) {
    unsigned found = 0;
    for_each_column<N>(mask, line, [&](int, const bool(&flags)[N]) {
#pragma unroll
      for (int i = 0; i < N; ++i) found += flags[i];
    });
    found = __reduce_add_sync(all_lanes, found);
    if (threadIdx.x % warp == 0) row_offsets[line] = static_cast<int32_t>(found);
  }
  __syncthreads();
  int total = 0;
  for (int64_t first = mask.first(); first < mask.end(); first += threads) {
    const int64_t line = first + threadIdx.x;
    const int count = line < mask.end() ? row_offsets[line] : 0;
    const int before = scan_threads<false, ScanSum>(count);
    if (line < mask.end()) row_offsets[line] = total + before;
    total += device::block_reduce(count, device::Sum{}, 0);
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

/// A mask of fewer blocks than the layout leaves entries at the end, which lead nowhere else.
template <int N>
__global__ void __launch_bounds__(threads)
    list_kernel(const __grid_constant__ Mask mask, const int32_t* totals, int32_t* row_offsets,
                ListedBlocks to, ListedColumns by_column) {
  wait_for_previous_launch();
  int before = 0;
  for (unsigned group = threadIdx.x; group < blockIdx.x; group += threads) before += totals[group];
  before = device::block_reduce(before, device::Sum{}, 0);
  const int lane = static_cast<int>(threadIdx.x % warp);
  const unsigned in_front = (1U << lane) - 1;
  for (int64_t line = mask.first() + threadIdx.x / warp; line < mask.end();
       line += threads / warp) {
    const auto head = static_cast<int>(line / mask.rows);
    const int row = static_cast<int>(line - int64_t{head} * mask.rows);
    int at = before + row_offsets[line];
    __syncwarp();
    if (lane == 0) row_offsets[line] = min(at, mask.nnz);
    for_each_column<N>(mask, line, [&](int column, const bool(&flags)[N]) {
      int place = at;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const unsigned alike = __ballot_sync(all_lanes, flags[i]);
        place += __popc(alike & in_front);
        at += __popc(alike);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (flags[i] && place < mask.nnz) to.list(place, head, row, column + i);
        place += flags[i];
      }
    });
    if (line < mask.lines - 1) continue;
    if (lane == 0) row_offsets[mask.lines] = min(at, mask.nnz);
    for (int n = at + lane; n < mask.nnz; n += warp) {
      to.list(n, head, row, 0);
      by_column.list(n, 0, 0);
    }
  }
}

}  // namespace

void layout_from_mask(const Tensor& mask, const LayoutArrays& arrays, Stream stream) {
  constexpr int64_t least = threads / warp, most_groups = 1024;
  const LayoutView& v = arrays.view;
  const auto* const kept = static_cast<const uint8_t*>(mask.data());
  const int64_t lines = mask.size(0), cols = mask.size(1);
  const Mask of{kept, lines, cols, std::max(least, ceil_div(lines, most_groups)), v.rows, v.nnz};
  const auto groups = static_cast<unsigned>(ceil_div(lines, of.group));
  const Tensor totals = Tensor::empty({groups}, i32, mask.device());
  int32_t* const row_offsets = arrays.writable(v.row_offsets);
  const auto run = [&]<int N>(std::integral_constant<int, N>) {
    count_kernel<N>
        <<<groups, threads, 0, native(stream)>>>(of, row_offsets, totals.data<int32_t>());
    BS_CUDA_CHECK_LAUNCH("layout_from_mask");
    launch_early(list_kernel<N>, groups, threads, 0, stream, of, totals.data<int32_t>(),
                 row_offsets, ListedBlocks(arrays), ListedColumns(arrays));
  };
  if (cols % 4 == 0 && reinterpret_cast<uintptr_t>(kept) % 4 == 0) {
    run(std::integral_constant<int, 4>{});
  } else {
    run(std::integral_constant<int, 1>{});
  }
}

}  // namespace bs::cuda

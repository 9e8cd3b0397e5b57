#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/block_sparse/listed_blocks.cuh>
#include <bs/kernels/cuda/device/tile/reduce.cuh>
#include <bs/kernels/cuda/early_launch.cuh>
#include <bs/kernels/cuda/scan_threads.cuh>

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <limits>

namespace bs::cuda {

// Blocks are listed by row. They are numbered by column head by head: those of a head come in one
// stretch in both orders. A block of threads has some columns of one, and a bit for each of their
// places, whose counts tell where blocks go. Tall heads have too many places; there a stable sort
// of the blocks' numbers by (head, column) does it.

namespace {

constexpr int threads = 256;

/// The first of `count` ascending numbers that is greater than `x`, or not less.
template <bool greater, class T>
__device__ int bound(const T* numbers, int count, T x) {
  int begin = 0;
  while (count > 0) {
    const int half = count / 2;
    const T middle = numbers[begin + half];
    const bool before = greater ? middle <= x : middle < x;
    begin += before ? half + 1 : 0;
    count = before ? count - half - 1 : half;
  }
  return begin;
}

/// What is outside of the extents is brought inside, so that no list leads out of the arrays. Nor
/// do the entries by column that wrong lists leave out.
__global__ void row_kernel(const int32_t* offsets, const int32_t* columns, LayoutView v,
                           int32_t* row_offsets, ListedBlocks to, ListedColumns by_column) {
  let_next_launch_begin();
  const int lines = v.heads * v.rows;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i <= lines; i += step) row_offsets[i] = min(max(offsets[i], 0), v.nnz);
  for (int64_t n = first; n < v.nnz; n += step) {
    const int line = max(bound<true>(offsets, lines, static_cast<int32_t>(n)) - 1, 0);
    to.list(n, line / v.rows, line % v.rows, min(max(columns[n], 0), v.cols - 1));
    by_column.list(n, 0, 0);
  }
}

constexpr int column_threads = 512;
constexpr int most_words = 6144;  ///< of bits, in shared memory with a count each

/// Columns of a head on blocks of threads, which have `width` each.
struct ColumnParts {
  int parts = 0, width = 0, words = 0;  ///< words of a column's bits
};

/// Fewer than `column_threads` columns a part, and as many parts as keep a GPU busy. None where
/// reading a head's blocks once a part would cost more than a sort.
ColumnParts column_parts(const LayoutView& v, Device device) {
  constexpr int64_t most_parts = 64, most_blocks = 1 << 17, least_width = 32;
  const int64_t words = ceil_div(int64_t{v.rows}, int64_t{32});
  if (v.rows > std::numeric_limits<uint16_t>::max() || v.nnz > most_blocks * v.heads) return {};
  const int64_t blocks =
      std::max<int64_t>(1, 2 * device_properties(device).multiprocessors / v.heads);
  const int64_t width = std::min({std::max(ceil_div(int64_t{v.cols}, blocks), least_width),
                                  int64_t{column_threads}, most_words / words});
  const int64_t parts = ceil_div(int64_t{v.cols}, width);
  if (parts > most_parts) return {};
  return {static_cast<int>(parts), static_cast<int>(width), static_cast<int>(words)};
}

__global__ void __launch_bounds__(column_threads)
    column_kernel(LayoutView v, ListedColumns to, ColumnParts of) {
  __shared__ uint32_t bits[most_words];   // [words, width]
  __shared__ uint16_t above[most_words];  // how many of the column stand in words before
  __shared__ int32_t begins[column_threads];
  const int thread = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(blockIdx.x) / of.parts;
  const int part = static_cast<int>(blockIdx.x) % of.parts, first = part * of.width;
  const int count = min(of.width, v.cols - first);
  for (int i = thread; i < of.words * of.width; i += column_threads) bits[i] = 0;
  __syncthreads();
  wait_for_previous_launch();
  const int begin = v.row_offsets[int64_t{head} * v.rows],
            end = v.row_offsets[int64_t{head + 1} * v.rows];
  // Calls f(block number, column in this part, row) for those of the part.
  int before = 0;
  const auto for_each = [&](auto&& f) {
#pragma unroll 4
    for (int n = begin + thread; n < end; n += column_threads) {
      const int column = v.col_of[n] - first, row = v.row_of[n];
      before += column < 0;
      if (column >= 0 && column < count) f(n, column, row);
    }
  };
  for_each([&](int, int column, int row) {
    atomicOr(&bits[row / 32 * of.width + column], 1U << row % 32);
  });
  before = device::block_reduce(before, device::Sum{}, 0);
  __syncthreads();
  int total = 0;
  if (thread < count)
    for (int w = 0; w < of.words; ++w) {
      above[w * of.width + thread] = static_cast<uint16_t>(total);
      total += __popc(bits[w * of.width + thread]);
    }
  const int from = begin + before + scan_threads<false, ScanSum>(total);
  begins[thread] = from;
  if (thread < count) to.col_offsets[int64_t{head} * v.cols + first + thread] = from;
  if (thread == 0 && blockIdx.x == gridDim.x - 1) to.col_offsets[int64_t{v.heads} * v.cols] = v.nnz;
  __syncthreads();
  for_each([&](int n, int column, int row) {
    const int word = row / 32 * of.width + column;
    const int place = begins[column] + above[word] + __popc(bits[word] & ((1U << row % 32) - 1));
    to.list(place, n, row);
  });
}

__global__ void key_kernel(LayoutView v, uint32_t* keys, int32_t* numbers) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t n = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < v.nnz; n += step) {
    keys[n] = static_cast<uint32_t>(v.head_of[n]) * static_cast<uint32_t>(v.cols) +
              static_cast<uint32_t>(v.col_of[n]);
    numbers[n] = static_cast<int32_t>(n);
  }
}

__global__ void sorted_kernel(const uint32_t* keys, LayoutView v, int32_t* col_offsets,
                              int32_t* transposed_row) {
  const int bins = v.heads * v.cols;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t bin = first; bin <= bins; bin += step)
    col_offsets[bin] = bound<false>(keys, v.nnz, static_cast<uint32_t>(bin));
  for (int64_t n = first; n < v.nnz; n += step) transposed_row[n] = v.row_of[v.transposed[n]];
}

uint32_t* words(const Tensor& x) { return static_cast<uint32_t*>(x.data()); }

void sort_columns(const LayoutArrays& arrays, Stream stream) {
  const LayoutView& v = arrays.view;
  const Device device = arrays.memory.device();
  const Tensor keys = Tensor::empty({v.nnz}, i32, device);
  const Tensor sorted = Tensor::empty({v.nnz}, i32, device);
  const Tensor numbers = Tensor::empty({v.nnz}, i32, device);
  const int64_t bins = int64_t{v.heads} * v.cols;
  const auto grid = [&](int64_t count) {
    return grid_size(std::max<int64_t>(v.nnz, count), threads, device);
  };
  if (v.nnz > 0) {
    key_kernel<<<grid(0), threads, 0, native(stream)>>>(v, words(keys), numbers.data<int32_t>());
    const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(bins - 1))));
    const auto run = [&](void* space, size_t& bytes) {
      BS_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(
          space, bytes, words(keys), words(sorted), numbers.data<int32_t>(),
          arrays.writable(v.transposed), v.nnz, 0, bits, native(stream)));
    };
    size_t bytes = 0;
    run(nullptr, bytes);
    const Tensor space = Tensor::empty({static_cast<int64_t>(bytes)}, u8, device);
    run(space.data(), bytes);
  }
  sorted_kernel<<<grid(bins + 1), threads, 0, native(stream)>>>(
      words(sorted), v, arrays.writable(v.col_offsets), arrays.writable(v.transposed_row));
}

}  // namespace

void layout_from_rows(const Tensor& row_offsets, const Tensor& columns, const LayoutArrays& arrays,
                      Stream stream) {
  const LayoutView& v = arrays.view;
  const int64_t lines = int64_t{v.heads} * v.rows;
  row_kernel<<<grid_size(std::max<int64_t>(v.nnz, lines + 1), threads, columns.device()), threads,
               0, native(stream)>>>(row_offsets.data<int32_t>(), columns.data<int32_t>(), v,
                                    arrays.writable(v.row_offsets), ListedBlocks(arrays),
                                    ListedColumns(arrays));
  BS_CUDA_CHECK_LAUNCH("layout_from_rows");
}

void list_columns(const LayoutArrays& arrays, Stream stream) {
  const LayoutView& v = arrays.view;
  const ColumnParts parts = v.nnz > 0 ? column_parts(v, arrays.memory.device()) : ColumnParts{};
  if (parts.parts > 0) {
    launch_early(column_kernel, static_cast<unsigned>(v.heads * parts.parts), column_threads, 0,
                 stream, v, ListedColumns(arrays), parts);
  } else {
    sort_columns(arrays, stream);
  }
  BS_CUDA_CHECK_LAUNCH("layout_from_rows");
}

}  // namespace bs::cuda

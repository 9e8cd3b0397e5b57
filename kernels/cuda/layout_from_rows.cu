#include <bs/kernels/layout_from_rows.h>
#include <bs/lib/cuda/launch.h>

#include <cub/device/device_radix_sort.cuh>

#include <bit>

namespace bs::cuda {

// Blocks are listed by row. A stable sort of their numbers by (head, column) lists them by column.

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

struct Rows {
  int32_t *row_offsets, *head_of, *row_of, *col_of;
};

/// What is outside of the extents is brought inside, so that no list leads out of the arrays.
__global__ void row_kernel(const int32_t* offsets, const int32_t* columns, LayoutView v, Rows to,
                           uint32_t* keys, int32_t* numbers) {
  const int lines = v.heads * v.rows;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i <= lines; i += step) to.row_offsets[i] = min(max(offsets[i], 0), v.nnz);
  for (int64_t n = first; n < v.nnz; n += step) {
    const int line = max(bound<true>(offsets, lines, static_cast<int32_t>(n)) - 1, 0);
    const int head = line / v.rows;
    const int col = min(max(columns[n], 0), v.cols - 1);
    to.head_of[n] = head;
    to.row_of[n] = line % v.rows;
    to.col_of[n] = col;
    keys[n] =
        static_cast<uint32_t>(head) * static_cast<uint32_t>(v.cols) + static_cast<uint32_t>(col);
    numbers[n] = static_cast<int32_t>(n);
  }
}

__global__ void column_kernel(const uint32_t* keys, LayoutView v, int32_t* col_offsets,
                              int32_t* transposed_row) {
  const int bins = v.heads * v.cols;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t bin = first; bin <= bins; bin += step)
    col_offsets[bin] = bound<false>(keys, v.nnz, static_cast<uint32_t>(bin));
  for (int64_t n = first; n < v.nnz; n += step) transposed_row[n] = v.row_of[v.transposed[n]];
}

uint32_t* words(const Tensor& x) { return static_cast<uint32_t*>(x.data()); }

}  // namespace

void layout_from_rows(const Tensor& row_offsets, const Tensor& columns, const LayoutArrays& arrays,
                      Stream stream) {
  const LayoutView& v = arrays.view;
  const Device device = columns.device();
  const Tensor keys = Tensor::empty({v.nnz}, i32, device);
  const Tensor sorted = Tensor::empty({v.nnz}, i32, device);
  const Tensor numbers = Tensor::empty({v.nnz}, i32, device);
  const Rows rows{arrays.writable(v.row_offsets), arrays.writable(v.head_of),
                  arrays.writable(v.row_of), arrays.writable(v.col_of)};
  const int64_t lines = int64_t{v.heads} * v.rows, bins = int64_t{v.heads} * v.cols;
  const auto grid = [&](int64_t count) {
    return grid_size(std::max<int64_t>(v.nnz, count + 1), threads, device);
  };
  row_kernel<<<grid(lines), threads, 0, native(stream)>>>(row_offsets.data<int32_t>(),
                                                          columns.data<int32_t>(), v, rows,
                                                          words(keys), numbers.data<int32_t>());
  if (v.nnz > 0) {
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
  column_kernel<<<grid(bins), threads, 0, native(stream)>>>(
      words(sorted), v, arrays.writable(v.col_offsets), arrays.writable(v.transposed_row));
  BS_CUDA_CHECK_LAUNCH("layout_from_rows");
}

}  // namespace bs::cuda

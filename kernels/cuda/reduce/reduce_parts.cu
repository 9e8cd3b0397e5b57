#include <bs/kernels/cuda/reduce/reduce_parts.h>
#include <bs/lib/cuda/grid.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

namespace {

/// Partial results of one number: `count` of them, number j at `first + at(j)`.
struct DenseParts {
  int parts;
  int64_t length;

  struct Line {
    int64_t first, step;
    int count;
    __device__ int64_t at(int j) const { return first + j * step; }
  };
  __device__ Line line(int64_t i) const {
    return {i / length * parts * length + i % length, length, parts};
  }
};

/// Of the rows of a layout, or of its columns: block after block, piece after piece of each.
struct BlockParts {
  const int* offsets;  ///< of lines of blocks
  const int* number;   ///< of a block, or null where they are numbered in this order
  int heads, lines, block, pieces;
  int64_t batch;  ///< steps in elements
  int64_t of_block, of_piece;

  struct Line {
    const int* number;
    int64_t first, of_block, of_piece;
    int first_block, pieces, count;
    __device__ int64_t at(int j) const {
      const int entry = j / pieces;
      const int64_t of = number != nullptr ? number[entry] : first_block + entry;
      return first + of * of_block + j % pieces * of_piece;
    }
  };
  __device__ Line line(int64_t i) const {
    const int64_t of_matrix = int64_t{lines} * block;
    const int64_t matrix = i / of_matrix, inside = i % of_matrix;
    const int at = static_cast<int>(matrix % heads) * lines + static_cast<int>(inside / block);
    return {number != nullptr ? number + offsets[at] : nullptr,
            matrix / heads * batch + inside % block,
            of_block,
            of_piece,
            offsets[at],
            pieces,
            (offsets[at + 1] - offsets[at]) * pieces};
  }
};

constexpr int lanes = 32, slices = 16;

/// A lane a number, and of its parts every sixteenth a warp.
template <class T, class Parts>
__global__ void reduce_lines(const T* partial, T* out, Parts parts, int64_t count, bool is_max) {
  __shared__ T totals[slices][lanes];
  const int lane = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const int64_t i = int64_t{blockIdx.x} * lanes + lane;
  const auto both = [is_max](T x, T y) { return is_max ? (x > y || x != x ? x : y) : x + y; };
  T total = is_max ? -static_cast<T>(__int_as_float(0x7f800000)) : T(0);
  if (i < count) {
    const auto line = parts.line(i);
#pragma unroll 8
    for (int j = slice; j < line.count; j += slices) total = both(total, partial[line.at(j)]);
  }
  totals[slice][lane] = total;
  __syncthreads();
  if (slice != 0 || i >= count) return;
#pragma unroll
  for (int other = 1; other < slices; ++other) total = both(total, totals[other][lane]);
  out[i] = total;
}

template <class Parts>
void launch(const Tensor& partial, const Tensor& out, const Parts& parts, bool is_max,
            Stream stream) {
  const int64_t count = out.numel();
  if (count == 0) return;
  const unsigned grid = grid_of("reduce_parts", ceil_div(count, lanes));
  const auto run = [&]<class T>(Type<T>) {
    reduce_lines<<<grid, dim3(lanes, slices), 0, native(stream)>>>(
        pointer<T>(partial), pointer<T>(out), parts, count, is_max);
  };
  if (out.dtype() == f64) {
    run(Type<double>{});
  } else {
    run(Type<float>{});
  }
  BS_CUDA_CHECK_LAUNCH("reduce_parts");
}

}  // namespace

void reduce_parts(const Tensor& partial, const Tensor& out, bool is_max, Stream stream) {
  launch(partial, out, DenseParts{static_cast<int>(partial.size(1)), out.size(1)}, is_max, stream);
}

void reduce_blocks(const Tensor& partial, const LayoutView& layout, bool over_columns,
                   const Tensor& out, bool is_max, Stream stream) {
  const int64_t inner = partial.size(1) * partial.size(2);  // of one of the batch
  BlockParts parts{.offsets = over_columns ? layout.row_offsets : layout.col_offsets,
                   .number = over_columns ? nullptr : layout.transposed,
                   .heads = layout.heads,
                   .lines = over_columns ? layout.rows : layout.cols,
                   .block = layout.block,
                   .pieces = static_cast<int>(inner / (int64_t{layout.nnz} * layout.block)),
                   .batch = inner,
                   .of_block = layout.block,
                   .of_piece = int64_t{layout.nnz} * layout.block};
  if (!over_columns) {
    parts.of_block = int64_t{parts.pieces} * layout.block;
    parts.of_piece = layout.block;
  }
  launch(partial, out, parts, is_max, stream);
}

}  // namespace bs::cuda

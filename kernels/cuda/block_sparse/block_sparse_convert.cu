#include <bs/kernels/block_sparse_convert.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>

namespace bs::cuda {

namespace {

/// Chunks that a thread moves, a CTA's width apart: their loads are under way together.
constexpr int chunks_a_thread = 4;
constexpr int threads = 256;
/// Lines of which a thread of spread_kernel has a chunk.
constexpr int spread_lines = 16;

/// Chunks of a line that a CTA of spread_kernel has.
__host__ __device__ constexpr int spread_width(int block) {
  return threads * spread_lines / (block < spread_lines ? spread_lines : block);
}

/// Writes one matrix of the batch, zeros and blocks, each line once and from end to end: a CTA has
/// as many chunks of every line of a row of blocks, a thread one of every few lines, and so of one
/// block. `side` is the logarithm of the chunks of a block's row.
template <class Chunk>
__global__ void __launch_bounds__(threads)
    spread_kernel(const Chunk* values, Chunk* dense, LayoutView l, int side, int parts) {
  __shared__ int block_at[threads];
  const int width = spread_width(l.block);
  const int64_t row = blockIdx.x / parts;  // of all heads
  const int first = static_cast<int>(blockIdx.x % parts) * width, first_col = first >> side;
  const int cols = ((width - 1) >> side) + 1, length = l.cols << side;
  for (int i = threadIdx.x; i < cols; i += threads) block_at[i] = -1;
  __syncthreads();
  const int end = l.row_offsets[row + 1];
  for (int e = l.row_offsets[row] + threadIdx.x; e < end; e += threads) {
    const int col = l.col_of[e] - first_col;
    if (col >= 0 && col < cols) block_at[col] = e;
  }
  __syncthreads();
  const int at = threadIdx.x % width, line = threadIdx.x / width, apart = threads / width;
  if (first + at >= length) return;
  const int e = block_at[((first + at) >> side) - first_col];
  const int64_t area = int64_t{l.block} << side;
  Chunk* to = dense + (blockIdx.y * int64_t{l.heads} * l.rows + row) * l.block * length + first +
              at + int64_t{line} * length;
  const Chunk* from = values + (blockIdx.y * int64_t{l.nnz} + e) * area + (int64_t{line} << side) +
                      ((first + at) & ((1 << side) - 1));
  Chunk moved[spread_lines] = {};
#pragma unroll
  for (int i = 0; i < spread_lines; ++i)
    if (e >= 0 && i * apart < l.block) moved[i] = __ldcs(from + (int64_t{i} * apart << side));
#pragma unroll
  for (int i = 0; i < spread_lines; ++i)
    if (i * apart < l.block) to[int64_t{i} * apart * length] = moved[i];
}

/// Takes every block of one matrix of the batch out of its place, in chunks of bytes. `side` and
/// `area` are the logarithms of the chunks of a block's row and of a block.
template <class Chunk>
__global__ void __launch_bounds__(threads)
    gather_kernel(Chunk* values, const Chunk* dense, LayoutView l, int side, int area) {
  const int64_t total = int64_t{l.nnz} << area;
  const int64_t lines = int64_t{l.heads} * l.rows * l.block;  // of a matrix, all heads
  values += blockIdx.y * total;
  dense += blockIdx.y * lines * (int64_t{l.cols} << side);
  const int64_t first = int64_t{blockIdx.x} * (threads * chunks_a_thread) + threadIdx.x;
  Chunk moved[chunks_a_thread];
#pragma unroll
  for (int i = 0; i < chunks_a_thread; ++i) {
    const int64_t at = first + i * threads;
    if (at >= total) break;
    const auto e = static_cast<int32_t>(at >> area);
    const auto inside = static_cast<int32_t>(at & ((int64_t{1} << area) - 1));
    const int64_t row = int64_t{l.head_of[e]} * l.rows + l.row_of[e];
    const int64_t line = row * l.block + (inside >> side);
    moved[i] = dense[((line * l.cols + l.col_of[e]) << side) + (inside & ((1 << side) - 1))];
  }
#pragma unroll
  for (int i = 0; i < chunks_a_thread; ++i) {
    const int64_t at = first + i * threads;
    if (at >= total) break;
    values[at] = moved[i];
  }
}

/// A block of threads a block of `to`, which looks for it in its row of `from`.
template <class Chunk>
__global__ void __launch_bounds__(threads)
    relayout_kernel(const Chunk* values, Chunk* moved, LayoutView from, LayoutView to, int chunks) {
  const int64_t n = blockIdx.x;
  const int64_t line = int64_t{to.head_of[n]} * to.rows + to.row_of[n];
  const int column = to.col_of[n], last = from.row_offsets[line + 1];
  int at = from.row_offsets[line];
  for (int end = last; at < end;) {
    const int middle = (at + end) / 2;
    if (from.col_of[middle] < column) {
      at = middle + 1;
    } else {
      end = middle;
    }
  }
  const bool is_kept = at < last && from.col_of[at] == column;
  const Chunk* const source = values + int64_t{at} * chunks;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += static_cast<int>(blockDim.x))
    moved[n * chunks + i] = is_kept ? source[i] : Chunk{};
}

template <class Chunk, bool Spread>
void launch(const Tensor& values, const Tensor& dense, const LayoutView& l, Stream stream) {
  const auto bytes = static_cast<uint64_t>(size_of(values.dtype()));
  const auto block = static_cast<uint64_t>(l.block);
  const int side = std::countr_zero(block * bytes / sizeof(Chunk));
  const int area = side + std::countr_zero(block);
  const int64_t chunks = int64_t{l.nnz} << area;
  const int64_t matrices = values.numel() / (int64_t{l.nnz} * l.block * l.block);
  constexpr int64_t most = 65535;  // of a grid's second axis
  for (int64_t from = 0; from < matrices; from += most) {
    const int64_t count = std::min(most, matrices - from);
    Chunk* const x = static_cast<Chunk*>(values.data()) + from * chunks;
    Chunk* const y =
        static_cast<Chunk*>(dense.data()) + from * ((int64_t{l.heads} * l.rows * l.cols) << area);
    if constexpr (Spread) {
      const auto parts =
          static_cast<int>(ceil_div(int64_t{l.cols} << side, int64_t{spread_width(l.block)}));
      const dim3 grid(static_cast<unsigned>(int64_t{l.heads} * l.rows * parts),
                      static_cast<unsigned>(count));
      spread_kernel<<<grid, threads, 0, native(stream)>>>(x, y, l, side, parts);
    } else {
      const dim3 grid(static_cast<unsigned>(ceil_div(chunks, threads * chunks_a_thread)),
                      static_cast<unsigned>(count));
      gather_kernel<<<grid, threads, 0, native(stream)>>>(x, y, l, side, area);
    }
    BS_CUDA_CHECK_LAUNCH("block_sparse_convert");
  }
}

bool is_aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.data()) % sizeof(uint4) == 0;
}

/// A row of a block is 16 bytes at least, so only the tensors' beginnings can be out of line.
template <bool Spread>
void convert(const Tensor& values, const Tensor& dense, const LayoutView& l, Stream stream) {
  if (is_aligned(values) && is_aligned(dense)) {
    launch<uint4, Spread>(values, dense, l, stream);
  } else {
    launch<uint16_t, Spread>(values, dense, l, stream);
  }
}

}  // namespace

void to_dense(const Tensor& values, const LayoutView& layout, const Tensor& dense, Stream stream) {
  if (values.numel() == 0) {
    fill_zero(dense.data(), dense.bytes(), stream);
  } else {
    convert<true>(values, dense, layout, stream);
  }
}

void to_sparse(const Tensor& dense, const LayoutView& layout, const Tensor& values, Stream stream) {
  convert<false>(values, dense, layout, stream);
}

void relayout(const Tensor& values, const LayoutView& from, const LayoutView& to,
              const Tensor& moved, Stream stream) {
  const auto run = [&]<class Chunk>(Type<Chunk>) {
    const auto chunks =
        static_cast<int>(moved.bytes() / sizeof(Chunk) / static_cast<size_t>(to.nnz));
    const int wide = std::min(threads, static_cast<int>(round_up(int64_t{chunks}, int64_t{32})));
    relayout_kernel<<<static_cast<unsigned>(to.nnz), wide, 0, native(stream)>>>(
        static_cast<const Chunk*>(values.data()), static_cast<Chunk*>(moved.data()), from, to,
        chunks);
  };
  if (is_aligned(values) && is_aligned(moved)) {
    run(Type<uint4>{});
  } else {
    run(Type<uint8_t>{});
  }
  BS_CUDA_CHECK_LAUNCH("relayout");
}

}  // namespace bs::cuda

#include <bs/kernels/block_sparse_convert.h>
#include <bs/lib/cuda/launch.h>

#include <algorithm>
#include <bit>

namespace bs::cuda {

namespace {

/// Chunks that a thread moves, a CTA's width apart: their loads are under way together.
constexpr int chunks_a_thread = 4;
constexpr int threads = 256;

/// Moves every block of one matrix of the batch between its places, in chunks of bytes. `side` and
/// `area` are the logarithms of the chunks of a block's row and of a block.
template <class Chunk, bool Spread>
__global__ void __launch_bounds__(threads)
    convert_kernel(Chunk* values, Chunk* dense, LayoutView l, int side, int area) {
  const int64_t total = int64_t{l.nnz} << area;
  const int64_t lines = int64_t{l.heads} * l.rows * l.block;  // of a matrix, all heads
  values += blockIdx.y * total;
  dense += blockIdx.y * lines * (int64_t{l.cols} << side);
  const int64_t first = int64_t{blockIdx.x} * (threads * chunks_a_thread) + threadIdx.x;
  Chunk moved[chunks_a_thread];
  Chunk* places[chunks_a_thread];
#pragma unroll
  for (int i = 0; i < chunks_a_thread; ++i) {
    const int64_t at = first + i * threads;
    if (at >= total) break;
    const auto e = static_cast<int32_t>(at >> area);
    const auto inside = static_cast<int32_t>(at & ((int64_t{1} << area) - 1));
    const int64_t row = int64_t{l.head_of[e]} * l.rows + l.row_of[e];
    const int64_t line = row * l.block + (inside >> side);
    places[i] = dense + (((line * l.cols + l.col_of[e]) << side) + (inside & ((1 << side) - 1)));
    moved[i] = Spread ? values[at] : *places[i];
  }
#pragma unroll
  for (int i = 0; i < chunks_a_thread; ++i) {
    const int64_t at = first + i * threads;
    if (at >= total) break;
    if constexpr (Spread) {
      *places[i] = moved[i];
    } else {
      values[at] = moved[i];
    }
  }
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
    const dim3 grid(static_cast<unsigned>(ceil_div(chunks, threads * chunks_a_thread)),
                    static_cast<unsigned>(count));
    convert_kernel<Chunk, Spread><<<grid, threads, 0, native(stream)>>>(
        static_cast<Chunk*>(values.data()) + from * chunks,
        static_cast<Chunk*>(dense.data()) + from * ((int64_t{l.heads} * l.rows * l.cols) << area),
        l, side, area);
    BS_CUDA_CHECK_LAUNCH("block_sparse_convert");
  }
}

/// A row of a block is 16 bytes at least, so only the tensors' beginnings can be out of line.
template <bool Spread>
void convert(const Tensor& values, const Tensor& dense, const LayoutView& l, Stream stream) {
  const auto aligned = [](const Tensor& t) {
    return reinterpret_cast<uintptr_t>(t.data()) % sizeof(uint4) == 0;
  };
  if (aligned(values) && aligned(dense)) {
    launch<uint4, Spread>(values, dense, l, stream);
  } else {
    launch<uint16_t, Spread>(values, dense, l, stream);
  }
}

}  // namespace

void to_dense(const Tensor& values, const LayoutView& layout, const Tensor& dense, Stream stream) {
  if (values.numel() < dense.numel()) fill_zero(dense.data(), dense.bytes(), stream);
  if (values.numel() > 0) convert<true>(values, dense, layout, stream);
}

void to_sparse(const Tensor& dense, const LayoutView& layout, const Tensor& values, Stream stream) {
  convert<false>(values, dense, layout, stream);
}

}  // namespace bs::cuda

#include <bs/kernels/block_sparse_convert.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

namespace {

/// Moves every block between its places, a chunk of bytes a thread. `side` and `rows` are the
/// chunks of a block's row and its rows.
template <class Chunk, bool Spread>
__global__ void convert_kernel(Chunk* values, Chunk* dense, LayoutView l, int64_t matrices,
                               int32_t side) {
  const int64_t area = int64_t{side} * l.block;
  const int64_t total = matrices * l.nnz * area;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < total; at += step) {
    const auto inside = static_cast<int32_t>(at % area);
    const int64_t block = at / area;
    const auto e = static_cast<int32_t>(block % l.nnz);
    const int64_t row = (block / l.nnz * l.heads + l.head_of[e]) * l.rows + l.row_of[e];
    const int64_t line = row * l.block + inside / side;
    Chunk& in_dense = dense[(line * l.cols + l.col_of[e]) * side + inside % side];
    if constexpr (Spread) {
      in_dense = values[at];
    } else {
      values[at] = in_dense;
    }
  }
}

template <class Chunk, bool Spread>
void launch(const Tensor& values, const Tensor& dense, const LayoutView& l, Stream stream) {
  constexpr int threads = 256;
  const auto bytes = static_cast<int64_t>(size_of(values.dtype()));
  const int64_t matrices = values.numel() / (int64_t{l.nnz} * l.block * l.block);
  const auto side = static_cast<int32_t>(l.block * bytes / static_cast<int64_t>(sizeof(Chunk)));
  const int64_t chunks = matrices * l.nnz * l.block * side;
  convert_kernel<Chunk, Spread>
      <<<grid_size(chunks, threads, values.device()), threads, 0, native(stream)>>>(
          static_cast<Chunk*>(values.data()), static_cast<Chunk*>(dense.data()), l, matrices, side);
  BS_CUDA_CHECK_LAUNCH("block_sparse_convert");
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
  fill_zero(dense.data(), dense.bytes(), stream);
  if (values.numel() > 0) convert<true>(values, dense, layout, stream);
}

void to_sparse(const Tensor& dense, const LayoutView& layout, const Tensor& values, Stream stream) {
  convert<false>(values, dense, layout, stream);
}

}  // namespace bs::cuda

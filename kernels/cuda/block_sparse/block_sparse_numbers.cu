#include <bs/kernels/cuda/block_sparse/block_sparse_numbers.h>
#include <bs/lib/cuda/launch.h>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// One CTA a block row.
__global__ void __launch_bounds__(threads) number_kernel(int32_t* table, LayoutView l) {
  const int64_t row = blockIdx.x;  // of all heads
  table += row * l.cols;
  for (int col = threadIdx.x; col < l.cols; col += threads) table[col] = -1;
  __syncthreads();
  const int end = l.row_offsets[row + 1];
  for (int e = l.row_offsets[row] + static_cast<int>(threadIdx.x); e < end; e += threads)
    table[l.col_of[e]] = e;
}

BlockNumbers number(const LayoutView& l, Stream stream) {
  BlockNumbers numbers{Tensor::empty({l.heads, l.rows, l.cols}, i32, stream.device()), {}};
  const auto rows = static_cast<unsigned>(l.heads * l.rows);
  if (numbers.table.numel() > 0) {
    number_kernel<<<rows, threads, 0, native(stream)>>>(numbers.table.data<int32_t>(), l);
    BS_CUDA_CHECK_LAUNCH("block_sparse_numbers");
  }
  return numbers;
}

}  // namespace

Kept<BlockNumbers> block_numbers(const Layout& layout, Stream stream) {
  const Device device = stream.device();
  return listed_on<BlockNumbers>(layout, device.index(), stream,
                                 [&] { return number(layout.view(device), stream); });
}

}  // namespace bs::cuda

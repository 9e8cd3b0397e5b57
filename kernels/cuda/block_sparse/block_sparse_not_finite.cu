#include <bs/kernels/cuda/block_sparse/block_sparse_not_finite.h>
#include <bs/lib/cuda/launch.h>

#include <utility>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// Two 16-bit numbers, or one of f32: whether the exponent of any has all bits.
template <unsigned exponent>
__device__ bool not_finite(unsigned word) {
  if constexpr (exponent > 0xffff) return (word & exponent) == exponent;
  return (word & exponent) == exponent || (word >> 16 & exponent) == exponent;
}

/// Lines of so many pieces of 16 bytes, `line` bytes from each other, and `rest` bytes behind them.
template <unsigned exponent>
__global__ void __launch_bounds__(threads)
    find_kernel(const char* x, int64_t lines, int64_t pieces, int64_t line, int bytes, int32_t mark,
                int32_t* to) {
  const int64_t all = lines * pieces, step = int64_t{gridDim.x} * threads;
  bool found = false;
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < all; i += step) {
    const int64_t of = lines == 1 ? 0 : i / pieces;
    const char* const at = x + of * line + (i - of * pieces) * bytes;
    if (bytes == 16) {
      const uint4 words = __ldg(reinterpret_cast<const uint4*>(at));
      found = found || not_finite<exponent>(words.x) || not_finite<exponent>(words.y) ||
              not_finite<exponent>(words.z) || not_finite<exponent>(words.w);
    } else if (bytes == 4) {
      found = found || not_finite<exponent>(__ldg(reinterpret_cast<const unsigned*>(at)));
    } else {
      found = found || not_finite<exponent>(__ldg(reinterpret_cast<const unsigned short*>(at)));
    }
  }
  if (found) *to = mark;
}

}  // namespace

void find_not_finite(const Tensor& x, int32_t mark, int32_t* to, Stream stream) {
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  int64_t lines = x.size(0), length = x.size(1), step = x.strides()[0];
  if (x.strides()[1] != 1 && length != 1) {
    std::swap(lines, length);
    step = x.strides()[1];
  }
  if (step == length) {
    length *= lines;
    lines = 1;
  }
  const auto address = reinterpret_cast<uintptr_t>(x.data());
  const bool whole = address % 16 == 0 && length * size % 16 == 0 && step * size % 16 == 0;
  const int64_t bytes = whole ? 16 : size, pieces = length * size / bytes;
  if (lines * pieces == 0) return;
  const unsigned grid = grid_size(lines * pieces, threads, stream.device());
  const auto* const from = static_cast<const char*>(x.data());
  const auto launch = [&](auto* kernel) {
    kernel<<<grid, threads, 0, native(stream)>>>(from, lines, pieces, step * size,
                                                 static_cast<int>(bytes), mark, to);
  };
  launch(x.dtype() == f32    ? find_kernel<0x7f800000>
         : x.dtype() == bf16 ? find_kernel<0x7f80>
                             : find_kernel<0x7c00>);
  BS_CUDA_CHECK_LAUNCH("dsd");
}

}  // namespace bs::cuda

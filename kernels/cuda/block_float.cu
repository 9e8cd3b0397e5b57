#include <bs/kernels/block_float.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/integers.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>

namespace bs::cuda {

namespace {

using device::wide;

/// A thread a block of numbers.
template <class T>
__global__ void block_float_kernel(const T* x, T* y, int64_t rows, int64_t n, BlockFloat format) {
  using W = wide<T>;
  const int64_t blocks = ceil_div(n, format.block);
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t b = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; b < rows * blocks; b += step) {
    const int64_t first = b / blocks * n + b % blocks * format.block;
    const int64_t last = min(first + format.block, (b / blocks + 1) * n);
    W largest = 0;
    bool finite = true;
    for (int64_t i = first; i < last; ++i) {
      const W size = abs(device::widen(x[i]));
      finite = finite && isfinite(size);
      largest = max(largest, size);
    }
    const bool rounds = finite && largest != W(0);
    const int exponent = rounds ? ilogb(largest) + 2 - format.bits : 0;
    const W top = scalbn(W(1), format.bits - 1);
    for (int64_t i = first; i < last; ++i) {
      if (!rounds) {
        y[i] = x[i];
        continue;
      }
      const W steps = rint(scalbn(device::widen(x[i]), -exponent));
      y[i] = device::narrow<T>(scalbn(min(max(steps, -top), top - 1), exponent));
    }
  }
}

}  // namespace

void block_float(const Tensor& x, const Tensor& y, BlockFloat format, Stream stream) {
  constexpr int threads = 128;
  const int64_t n = x.size(-1), rows = x.numel() / n;
  const unsigned grid = grid_size(rows * ceil_div(n, format.block), threads, x.device());
  visit_floating("block_float", x.dtype(), [&]<class T>(Type<T>) {
    block_float_kernel<<<grid, threads, 0, native(stream)>>>(pointer<T>(x), pointer<T>(y), rows, n,
                                                             format);
  });
  BS_CUDA_CHECK_LAUNCH("block_float");
}

}  // namespace bs::cuda

#include <bs/kernels/gather.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/integers.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cstring>

namespace bs::cuda {

namespace {

constexpr int threads = 256;

/// A row a threadIdx.y, of packs of N elements, whose bits are those of U.
template <class U, int N>
__global__ void __launch_bounds__(threads)
    one_hot_kernel(Integers indices, U* y, U one, int64_t rows, int64_t classes) {
  using Pack = device::Pack<U, N>;
  const int64_t step = int64_t{gridDim.x} * blockDim.y;
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows; r += step) {
    const int64_t index = indices[r];
    auto* const row = reinterpret_cast<Pack*>(y + r * classes);
    for (int64_t p = threadIdx.x; p < classes / N; p += blockDim.x) {
      const int64_t place = index - p * N;
      Pack pack;
#pragma unroll
      for (int i = 0; i < N; ++i) pack.at[i] = place == i ? one : U{0};
      row[p] = pack;
    }
  }
}

uint64_t bits_of_one(DType dtype) {
  uint64_t bits = 0;
  visit_any(dtype, [&]<class T>(Type<T>) {
    const T one = T(1.0F);
    std::memcpy(&bits, &one, sizeof one);
  });
  return bits;
}

}  // namespace

void one_hot(const Tensor& indices, const Tensor& y, Stream stream) {
  const int64_t rows = y.size(0), classes = y.size(1);
  detail::visit_bits(y.dtype(), [&]<class U>(Type<U>) {
    const auto one = static_cast<U>(bits_of_one(y.dtype()));
    visit_pack<U>(aligned16(y), classes, [&]<int N>(std::integral_constant<int, N>) {
      unsigned across = 1;
      while (across < threads && across < classes / N) across *= 2;
      const dim3 block(across, threads / across);
      one_hot_kernel<U, N>
          <<<grid_size(rows, static_cast<int>(block.y), y.device(), 16), block, 0,
             native(stream)>>>(integers(indices), static_cast<U*>(y.data()), one, rows, classes);
    });
  });
  BS_CUDA_CHECK_LAUNCH("one_hot");
}

}  // namespace bs::cuda

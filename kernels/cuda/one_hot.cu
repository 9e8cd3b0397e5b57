#include <bs/kernels/gather.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/integers.cuh>
#include <bs/kernels/cuda/row_packs.cuh>
#include <bs/kernels/cuda/rows.cuh>

#include <cstring>

namespace bs::cuda {

namespace {

/// Packs of N elements, whose bits are those of U.
template <class U, int N>
__global__ void __launch_bounds__(RowPacks::threads)
    one_hot_kernel(Integers indices, U* y, U one, const RowPacks packs) {
  const RowPacks::Stretch at = packs.stretch();
  if (at.row >= packs.rows) return;
  at.fill_but_one<N>(y + at.row * packs.packs * N, U{0}, indices[at.row], one);
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
      const RowPacks packs(rows, classes / N);
      one_hot_kernel<U, N><<<packs.grid("one_hot"), packs.block(), 0, native(stream)>>>(
          integers(indices), static_cast<U*>(y.data()), one, packs);
    });
  });
  BS_CUDA_CHECK_LAUNCH("one_hot");
}

}  // namespace bs::cuda

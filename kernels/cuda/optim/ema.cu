#include <bs/kernels/ema.h>
#include <bs/kernels/cuda/device/tile/arithmetic.cuh>
#include <bs/kernels/cuda/optim/tensor_table.cuh>

namespace bs::cuda {

namespace {

using device::wide;
using device::widen;

constexpr int threads = 256;

template <class T>
__global__ void __launch_bounds__(threads)
    ema_kernel(const __grid_constant__ TensorTable<2> table, wide<T> mix, const double* given) {
  if (given) mix = static_cast<wide<T>>(*given);
  const Chunk c = table.chunk(blockIdx.x);
  const T* value = table.at<T>(0, c.tensor);
  wide<T>* average = table.at<wide<T>>(1, c.tensor);
  constexpr int at_once = 4;
  device::Pack<T, 4> values[at_once];
  device::Pack<wide<T>, 4> averages[at_once];
  for_each_pack<threads, at_once>(
      c, aligned<4>(value) && aligned<4>(average),
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
        get<N>(value + i, values[u]);
        get<N>(average + i, averages[u]);
      },
      [&]<int N>(std::integral_constant<int, N>, int u, int64_t i) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          wide<T>& of = averages[u].at[k];
          of += mix * (widen(values[u].at[k]) - of);
        }
        put<N>(average + i, averages[u]);
      });
}

}  // namespace

void ema(std::span<const EmaParameter> parameters, double decay, const Tensor& mix, Stream stream) {
  for (DType dtype : floating_dtypes)
    visit_floating("ema", dtype, [&]<class T>(Type<T>) {
      using D = device_type<T>;
      for_each_table<2>(
          parameters, [=](const EmaParameter& p) { return p.value.dtype() == dtype; },
          [](TensorTable<2>& table, const EmaParameter& p) {
            table.add({p.value.data(), p.average.data()}, p.value.numel());
          },
          [&](const TensorTable<2>& table) {
            ema_kernel<D><<<table.chunks(), threads, 0, native(stream)>>>(
                table, static_cast<wide<D>>(1 - decay), numbers_of(mix));
            BS_CUDA_CHECK_LAUNCH("ema");
          });
    });
}

}  // namespace bs::cuda

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
    ema_kernel(const __grid_constant__ TensorTable<2> table, wide<T> mix) {
  const Chunk c = table.chunk(blockIdx.x);
  const T* value = table.at<T>(0, c.tensor);
  wide<T>* average = table.at<wide<T>>(1, c.tensor);
  for (int64_t i = c.begin + threadIdx.x; i < c.end; i += threads)
    average[i] += mix * (widen(value[i]) - average[i]);
}

}  // namespace

void ema(std::span<const EmaParameter> parameters, double decay, Stream stream) {
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
                table, static_cast<wide<D>>(1 - decay));
            BS_CUDA_CHECK_LAUNCH("ema");
          });
    });
}

}  // namespace bs::cuda

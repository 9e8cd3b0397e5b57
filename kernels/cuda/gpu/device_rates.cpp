#include <bs/kernels/device_rates.h>

#include <bs/kernels/cuda/gpu/gpu.h>

namespace bs::cuda {

void device_rates(DeviceRates& rates, Stream stream) {
  const Gpu& gpu = gpu_of(stream.device());
  rates = {.bytes = 1e9 * gpu.copy_rate,
           .half = 2e9 * gpu.half_rate(),
           .single = 2e9 * gpu.split_rate(),
           .wide = 0};
}

}  // namespace bs::cuda

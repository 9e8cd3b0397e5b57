#pragma once
/** @file Whether products of this process go to the kernels of wgmma. */
#include <bs/kernels/settings.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/tests/support/devices.h>

namespace bs::test {

/** @brief True on a Hopper GPU, unless the portable kernels are asked for. */
inline bool runs_wgmma() {
  const Device device = test_device();
  return device.is_cuda() && cuda_available() && cuda::device_properties(device).capability == 90 &&
         !settings().portable_products;
}

}  // namespace bs::test

#pragma once
// Launches that begin while the kernel before them ends (programmatic dependent launch, sm_90), so
// that a chain of short kernels does not pay for each beginning.
#include <bs/lib/cuda/launch.h>
#include <bs/kernels/cuda/device/ptx/launch_order.cuh>

#include <utility>

namespace bs::cuda {

using device::let_next_launch_begin;
using device::wait_for_previous_launch;

/// Whether kernels of this build wait for the one before by themselves on the current device: what
/// the driver compiles from a portable form for 8.0 doesn't, whatever the GPU.
inline bool kernels_wait() {
  int index = 0;
  BS_CUDA_CHECK(cudaGetDevice(&index));
  const int capability = device_properties(Device::cuda(index)).capability;
#ifdef BS_CUDA_PORTABLE
  return capability == 90;
#else
  return capability >= 90;
#endif
}

/// Launches a kernel that calls wait_for_previous_launch. `early`: while the kernel before it in
/// the stream, which there must be, still runs, if the GPU can.
template <class... Parameters, class... Arguments>
void launch_waiting(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                    cudaStream_t stream, bool early, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early && kernels_wait() ? 1 : 0;
  BS_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

/// The same, early.
template <class... Parameters, class... Arguments>
void launch_early(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                  Stream stream, Arguments&&... arguments) {
  launch_waiting(kernel, grid, block, shared, native(stream), true,
                 std::forward<Arguments>(arguments)...);
}

}  // namespace bs::cuda

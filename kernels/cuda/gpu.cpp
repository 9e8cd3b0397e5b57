#include <bs/kernels/cuda/gpu.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>

#include <map>
#include <mutex>

namespace bs::cuda {

namespace {

Gpu measure(Device device) {
  const DeviceProperties& p = device_properties(device);
  Gpu gpu;
  gpu.multiprocessors = p.multiprocessors;
  gpu.capability = p.capability;
  gpu.shared_bytes = p.shared_memory_optin;
  gpu.l2_bytes = p.l2_bytes;
  gpu.memory_bytes = gpu.free_bytes = p.memory_bytes;
  gpu.memory_rate = p.memory_rate / 1e9;
  return gpu;
}

}  // namespace

const Gpu& gpu_of(Device device) {
  static const Gpu stand_in;
  static std::mutex mutex;
  static std::map<int, const Gpu> all;
  if (device.is_cpu()) return stand_in;
  const std::lock_guard lock(mutex);
  const auto found = all.find(device.index());
  return found != all.end() ? found->second
                            : all.emplace(device.index(), measure(device)).first->second;
}

Gpu gpu_now(Device device) {
  Gpu gpu = gpu_of(device);
  if (device.is_cuda()) gpu.free_bytes = free_memory(device);
  return gpu;
}

}  // namespace bs::cuda

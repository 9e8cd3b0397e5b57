#include <bs/kernels/cuda/gpu/gpu.h>
#include <bs/kernels/cuda/gpu/gpu_measure.h>
#include <bs/lib/cuda/pool.h>

#include <map>
#include <mutex>

namespace bs::cuda {

const Gpu& gpu_of(Device device) {
  static const Gpu stand_in;
  static std::mutex mutex;
  static std::map<int, const Gpu> all;
  if (device.is_cpu()) return stand_in;
  const std::lock_guard lock(mutex);
  const auto found = all.find(device.index());
  return found != all.end() ? found->second
                            : all.emplace(device.index(), model_of(device).gpu).first->second;
}

Gpu gpu_now(Device device) {
  Gpu gpu = gpu_of(device);
  if (device.is_cuda()) gpu.free_bytes = free_memory(device);
  return gpu;
}

}  // namespace bs::cuda

#include <bs/lib/stream_pool.h>

#if BS_WITH_CUDA
#include <bs/lib/cuda/pool.h>
#endif

namespace bs {

Stream next_stream(Device device) {
  if (device.is_cpu()) return {device, nullptr};
  check_usable("next_stream", device);
#if BS_WITH_CUDA
  return cuda::pooled_stream(device);
#else
  return {};
#endif
}

}  // namespace bs

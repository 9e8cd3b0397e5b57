#include <bs/lib/stream.h>

#include <array>
#include <cstddef>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs {

namespace {
constexpr size_t places = 64;  // as many GPUs as the library takes
/// Streams set by StreamGuard, one a device; others use the device's default stream. Each operation
/// asks several times: there is nothing to construct in a thread, and nothing to search.
thread_local constinit std::array<Stream, places> chosen_streams{};

Stream& chosen_stream(Device device) {
  return chosen_streams[static_cast<size_t>(device.index()) % places];
}
}  // namespace

Stream current_stream(Device device) {
  if (device.is_cpu()) return {device, nullptr};
  if (const Stream& chosen = chosen_stream(device); chosen.device() == device) return chosen;
#if BS_WITH_CUDA
  return cuda::default_stream(device);
#else
  check_usable("current_stream", device);
  return {};
#endif
}

void Stream::synchronize() const {
#if BS_WITH_CUDA
  if (device_.is_cuda()) cuda::synchronize(*this);
#endif
}

void synchronize(Device device) { current_stream(device).synchronize(); }

StreamGuard::StreamGuard(Stream stream) : previous_(current_stream(stream.device())) {
  if (stream.device().is_cuda()) chosen_stream(stream.device()) = stream;
}

StreamGuard::~StreamGuard() {
  if (previous_.device().is_cuda()) chosen_stream(previous_.device()) = previous_;
}

}  // namespace bs

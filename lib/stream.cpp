#include <bs/lib/stream.h>

#include <map>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs {

namespace {
/// Streams set by StreamGuard, one a device; others use the device's default stream.
thread_local std::map<int, Stream> chosen_streams;
}  // namespace

Stream current_stream(Device device) {
  if (device.is_cpu()) return {device, nullptr};
  if (const auto found = chosen_streams.find(device.index()); found != chosen_streams.end())
    return found->second;
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
  if (stream.device().is_cuda()) chosen_streams[stream.device().index()] = stream;
}

StreamGuard::~StreamGuard() {
  if (previous_.device().is_cuda()) chosen_streams[previous_.device().index()] = previous_;
}

}  // namespace bs

#include <bs/lib/device.h>

#include <bs/lib/check.h>

#include <charconv>
#if BS_WITH_CUDA
#include <bs/lib/cuda/runtime.h>
#endif

namespace bs {

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const char* last = text.data() + text.size();
    int index = -1;
    const auto [end, error] = std::from_chars(text.data() + 5, last, index);
    if (error == std::errc() && end == last && index >= 0) return cuda(index);
  }
  BS_THROW(Error, "device: cannot read '{}'; expected cpu, cuda or cuda:N", text);
}

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index());
}

#if BS_WITH_CUDA
int cuda_device_count() {
  static const int count = cuda::count_devices();
  return count;
}
#else
int cuda_device_count() { return 0; }
#endif

void check_usable(const char* op, Device device) {
  if (device.is_cpu()) return;
#if !BS_WITH_CUDA
  BS_THROW(Error, "{}: this build has no CUDA (device {})", op, device);
#endif
  BS_CHECK(device.index() >= 0 && device.index() < cuda_device_count(),
           "{}: device {} is not there; {} GPUs are usable", op, device, cuda_device_count());
}

}  // namespace bs

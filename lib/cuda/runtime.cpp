#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/gave_up.h>
#include <bs/lib/cuda/per_device.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/upload.h>

#include <string>

namespace bs::cuda {

namespace {
/// Pinned memory that one copy takes at most: larger ones take longer than the wait costs.
constexpr size_t most_staged = size_t{32} << 20;
cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle()); }

}  // namespace

void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear it, so that the next check reports its own error
  check_gave_up();
  if (status == cudaErrorMemoryAllocation)
    BS_THROW(OutOfMemory, "{}: {} ({}:{})", call, cudaGetErrorString(status), file, line);
  BS_THROW(CudaError, "{}: {}: {} ({}:{})", call, cudaGetErrorName(status),
           cudaGetErrorString(status), file, line);
}

int count_devices() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return count;
}

Stream default_stream(Device device) {
  check_usable("stream", device);
  static auto* const streams = new PerDevice<Stream>;
  return streams->get(device, [device] {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    cudaStream_t made = nullptr;
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return new Stream(device, made);
  });
}

void synchronize(Stream stream) {
  BS_CHECK(!is_captured(stream),
           "synchronize: {} computes nothing while a graph is recorded: wait outside of it",
           stream.device());
  const RelaxedCapture relaxed;
  BS_CUDA_CHECK(cudaStreamSynchronize(native(stream)));
  check_gave_up();
}

// Bytes that the host gives are taken at once, up to a size, and copied behind its back.
void copy(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  const Device gpu = to_device.is_cuda() ? to_device : from_device;
  const DeviceGuard guard(gpu);
  const Stream stream = current_stream(gpu);
  BS_CHECK(to_device == from_device || !is_captured(stream),
           "copy: from {} to {} while a graph is recorded: {}", from_device, to_device,
           from_device.is_cuda() ? "its values are computed by a replay, so look at them then"
                                 : "each replay would copy the same bytes, so copy before");
  if (from_device.is_cpu() && bytes <= most_staged) return copy_to_device(to, from, bytes, stream);
  if (to_device.is_cuda() && from_device.is_cuda() && to_device != from_device) {
    // The source may still be computing on its own stream.
    current_stream(from_device).synchronize();
  }
  BS_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
  if (to_device != from_device) stream.synchronize();
}

void fill_zero(void* pointer, size_t bytes, Stream stream) {
  const DeviceGuard guard(stream.device());
  BS_CUDA_CHECK(cudaMemsetAsync(pointer, 0, bytes, native(stream)));
}

DeviceGuard::DeviceGuard(Device device) : previous_(device.index()) {
  // Where there is one GPU it is always the current one: each operation would ask.
  if (cuda_device_count() != 1) BS_CUDA_CHECK(cudaGetDevice(&previous_));
  if (previous_ == device.index()) {
    previous_ = -1;  // there is nothing to restore
  } else {
    BS_CUDA_CHECK(cudaSetDevice(device.index()));
  }
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

bool is_captured(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BS_CUDA_CHECK(cudaStreamIsCapturing(native(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

// Where the driver is gone, as at exit, there is no capture either; the next call tells its error.
RelaxedCapture::RelaxedCapture() : mode_(-1) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  if (cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess) {
    mode_ = mode;
  } else {
    cudaGetLastError();
  }
}

RelaxedCapture::~RelaxedCapture() {
  if (mode_ < 0) return;
  auto mode = static_cast<cudaStreamCaptureMode>(mode_);
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) cudaGetLastError();
}

const DeviceProperties& device_properties(Device device) {
  check_usable("device_properties", device);
  static auto* const all_devices = new PerDevice<const DeviceProperties>;
  return all_devices->get(device, [device] {
    const auto attribute = [device](cudaDeviceAttr which) {
      int value = 0;
      BS_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, device.index()));
      return value;
    };
    DeviceProperties p;
    p.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    p.capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                   attribute(cudaDevAttrComputeCapabilityMinor);
    p.shared_memory_optin = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    p.l2_bytes = attribute(cudaDevAttrL2CacheSize);
    cudaDeviceProp all{};
    BS_CUDA_CHECK(cudaGetDeviceProperties(&all, device.index()));
    p.memory_bytes = static_cast<int64_t>(all.totalGlobalMem);
    const double transfers = 2e3 * attribute(cudaDevAttrMemoryClockRate);  // two a clock, of kHz
    p.memory_rate = transfers * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
    return new DeviceProperties(p);
  });
}

}  // namespace bs::cuda

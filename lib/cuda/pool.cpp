#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/per_device.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/ordered_pool.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <mutex>

namespace bs::cuda {

namespace {

/// A pool of CUDA's own for each device.
class DeviceMemory final : public OrderedMemory {
 public:
  explicit DeviceMemory(Device device) : device_(device) {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {.type = cudaMemLocationTypeDevice, .id = device.index()};
    BS_CUDA_CHECK(cudaMemPoolCreate(&pool_, &props));
    // Keep everything: giving memory back at each synchronisation costs a remapping every step.
    uint64_t threshold = std::numeric_limits<uint64_t>::max();
    BS_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
  }

  void* take(size_t bytes, Stream stream) override {
    const DeviceGuard guard(device_);
    const RelaxedCapture relaxed;
    void* pointer = nullptr;
    const cudaError_t status = cudaMallocFromPoolAsync(&pointer, bytes, pool_, native(stream));
    if (status != cudaErrorMemoryAllocation) BS_CUDA_CHECK(status);
    cudaGetLastError();
    return pointer;
  }
  bool give(void* pointer, Stream stream) noexcept override {
    const RelaxedCapture relaxed;
    if (cudaFreeAsync(pointer, native(stream)) == cudaSuccess) return true;
    cudaGetLastError();
    return false;
  }
  bool captured(Stream stream) noexcept override { return goes_into_graph(stream); }
  void wait() override {
    const DeviceGuard guard(device_);
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaDeviceSynchronize());
  }
  void trim(int64_t keep) override {
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaMemPoolTrimTo(pool_, static_cast<size_t>(keep)));
  }
  Stream stream() override { return default_stream(device_); }
  int64_t reserved() const override {
    uint64_t bytes = 0;
    BS_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes));
    return static_cast<int64_t>(bytes);
  }
  int64_t used() const override {
    uint64_t bytes = 0;
    BS_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &bytes));
    return static_cast<int64_t>(bytes);
  }
  MemoryShares shares() const override {
    const DeviceGuard guard(device_);
    const RelaxedCapture relaxed;
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    return {.total = static_cast<int64_t>(total),
            .free = static_cast<int64_t>(free),
            .tensors = memory_statistics(device_).in_use,
            .reserved = reserved()};
  }

 private:
  static cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.handle()); }

  Device device_;
  cudaMemPool_t pool_ = nullptr;
};

struct DevicePool {
  explicit DevicePool(Device device)
      : memory(device),
        pool(device, memory, default_stream(device),
             static_cast<size_t>(device_properties(device).memory_bytes / part_of_large)) {}
  /// Of all memory, what large blocks of other sizes than those asked for may keep.
  static constexpr int64_t part_of_large = 32;
  DeviceMemory memory;
  OrderedPool pool;
};

/// A DeviceGuard that throws nothing, also where the driver is gone, as at exit.
class QuietGuard {
 public:
  explicit QuietGuard(Device device) noexcept {
    if (cuda_device_count() == 1) return;
    int now = -1;
    if (cudaGetDevice(&now) == cudaSuccess && now == device.index()) return;
    if (now >= 0 && cudaSetDevice(device.index()) == cudaSuccess) {
      previous_ = now;
    } else {
      cudaGetLastError();
    }
  }
  QuietGuard(const QuietGuard&) = delete;
  QuietGuard& operator=(const QuietGuard&) = delete;
  ~QuietGuard() {
    if (previous_ >= 0 && cudaSetDevice(previous_) != cudaSuccess) cudaGetLastError();
  }

 private:
  int previous_ = -1;
};

}  // namespace

bool goes_into_graph(Stream stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.handle()), &status) == cudaSuccess)
    return status != cudaStreamCaptureStatusNone;
  cudaGetLastError();
  return false;
}

void follow(Stream stream, Stream other) noexcept {
  if (stream == other) return;
  const QuietGuard guard(other.device());  // which the event must be of, and the wait below
  cudaEvent_t event = nullptr;
  const bool queued =
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
      cudaEventRecord(event, static_cast<cudaStream_t>(other.handle())) == cudaSuccess &&
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle()), event, 0) == cudaSuccess;
  if (!queued) {  // the stream is gone, so there is no work to wait for by name: wait for all
    cudaGetLastError();
    const RelaxedCapture relaxed;
    if (cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
  }
  if (event && cudaEventDestroy(event) != cudaSuccess) cudaGetLastError();
}

Stream pooled_stream(Device device) {
  struct Streams {
    std::array<cudaStream_t, 32> made{};
    size_t next = 0;
  };
  // Never destroyed, since the driver may be gone by then.
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::map<int, Streams>;
  const std::lock_guard lock(*mutex);
  Streams& of = (*all)[device.index()];
  cudaStream_t& stream = of.made[of.next++ % of.made.size()];
  if (!stream) {
    const DeviceGuard guard(device);
    const RelaxedCapture relaxed;
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  return {device, stream};
}

void set_bytes(void* pointer, unsigned char value, size_t bytes, Stream stream) {
  const DeviceGuard guard(stream.device());
  BS_CUDA_CHECK(cudaMemsetAsync(pointer, value, bytes, static_cast<cudaStream_t>(stream.handle())));
}

int64_t free_memory(Device device) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return device_properties(device).memory_bytes;
  }
  const int64_t cached = device_pool(device).reserved() - memory_statistics(device).in_use;
  return static_cast<int64_t>(free) + std::max<int64_t>(cached, 0);
}

MemoryResource& device_pool(Device device) {
  check_usable("memory", device);
  static auto* const pools = new PerDevice<DevicePool>;
  return pools->get(device, [device] { return new DevicePool(device); }).pool;
}

}  // namespace bs::cuda

#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace bs::cuda {

namespace {

class DevicePool final : public MemoryResource {
 public:
  explicit DevicePool(Device device) : device_(device) {
    const DeviceGuard guard(device);
    cudaMemPoolProps props{};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = {.type = cudaMemLocationTypeDevice, .id = device.index()};
    BS_CUDA_CHECK(cudaMemPoolCreate(&pool_, &props));
    // Keep everything: giving memory back at each synchronisation costs a remapping every step.
    uint64_t threshold = std::numeric_limits<uint64_t>::max();
    BS_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
  }

  void* allocate(size_t bytes, Stream stream) override {
    const DeviceGuard guard(device_);
    void* pointer = take(bytes, stream);
    // What other streams freed can be had once they are done; no capture may wait for that.
    if (!pointer && !Recording::current() && !is_captured(stream)) {
      trim();
      pointer = take(bytes, stream);
    }
    if (!pointer) throw OutOfMemory(out_of_memory_text(device_, bytes, shares()));
    return pointer;
  }

  void deallocate(void* pointer, size_t, Stream stream) noexcept override {
    if (cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream.handle())) == cudaSuccess) return;
    // The stream is captured. Or the process ends and the driver is gone: then nobody trims.
    cudaGetLastError();
    const std::lock_guard lock(mutex_);
    stranded_.push_back(pointer);
  }

  void trim() override {
    const DeviceGuard guard(device_);
    BS_CUDA_CHECK(cudaDeviceSynchronize());
    std::vector<void*> stranded;
    {
      const std::lock_guard lock(mutex_);
      stranded.swap(stranded_);
    }
    const Stream stream = default_stream(device_);
    for (void* pointer : stranded) deallocate(pointer, 0, stream);
    if (!stranded.empty()) stream.synchronize();
    BS_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
  }

  int64_t reserved() const override {
    uint64_t bytes = 0;
    BS_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes));
    return static_cast<int64_t>(bytes);
  }

 private:
  /// Null where the device has too little.
  void* take(size_t bytes, Stream stream) {
    void* pointer = nullptr;
    const cudaError_t status =
        cudaMallocFromPoolAsync(&pointer, bytes, pool_, static_cast<cudaStream_t>(stream.handle()));
    if (status != cudaErrorMemoryAllocation) BS_CUDA_CHECK(status);
    cudaGetLastError();
    return pointer;
  }
  MemoryShares shares() const {
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    return {.total = static_cast<int64_t>(total),
            .free = static_cast<int64_t>(free),
            .tensors = memory_statistics(device_).in_use,
            .reserved = reserved()};
  }

  Device device_;
  cudaMemPool_t pool_ = nullptr;
  std::mutex mutex_;
  std::vector<void*> stranded_;  ///< freed, but not by their streams
};

}  // namespace

void follow(Stream stream, Stream other) noexcept {
  if (stream == other) return;
  cudaEvent_t event = nullptr;
  const bool queued =
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
      cudaEventRecord(event, static_cast<cudaStream_t>(other.handle())) == cudaSuccess &&
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream.handle()), event, 0) == cudaSuccess;
  // Where the stream is gone there is no work to wait for by name: wait for all.
  if (!queued && cudaDeviceSynchronize() != cudaSuccess) cudaGetLastError();
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
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  return {device, stream};
}

MemoryResource& device_pool(Device device) {
  check_usable("memory", device);
  static auto* const mutex = new std::mutex;
  static auto* const pools = new std::map<int, std::unique_ptr<DevicePool>>;
  const std::lock_guard lock(*mutex);
  auto& pool = (*pools)[device.index()];
  if (!pool) pool = std::make_unique<DevicePool>(device);
  return *pool;
}

}  // namespace bs::cuda

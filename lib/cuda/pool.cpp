#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>

#include <limits>
#include <map>
#include <memory>
#include <mutex>

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
    const auto native = static_cast<cudaStream_t>(stream.handle());
    void* pointer = nullptr;
    const cudaError_t status = cudaMallocFromPoolAsync(&pointer, bytes, pool_, native);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      BS_THROW(OutOfMemory, "memory: {} cannot give {} bytes; {} are reserved", device_, bytes,
               reserved());
    }
    BS_CUDA_CHECK(status);
    return pointer;
  }

  void deallocate(void* pointer, size_t, Stream stream) noexcept override {
    // At process exit the driver may be gone already; there is nobody to tell then.
    if (cudaFreeAsync(pointer, static_cast<cudaStream_t>(stream.handle())) != cudaSuccess)
      cudaGetLastError();
  }

  void trim() override {
    synchronize(current_stream(device_));
    BS_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
  }

  int64_t reserved() const override {
    uint64_t bytes = 0;
    BS_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes));
    return static_cast<int64_t>(bytes);
  }

 private:
  Device device_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace

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

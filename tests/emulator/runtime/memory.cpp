// Memory of the device, which is the host's. Each block has a border that is looked at when it is
// given back, and holds what no program should read before it has written there.
#include <bs/tests/emulator/runtime/state.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

namespace bs::emulator {

namespace {

constexpr size_t alignment = 512, least_border = 256, most_filled = 1 << 20;
constexpr int unwritten = 0xcd;
constexpr auto border = static_cast<unsigned char>(0xfd);

size_t whole_bytes(size_t bytes) {
  return (bytes + least_border + alignment - 1) / alignment * alignment;
}

class Memory {
 public:
  void* take(size_t bytes) {
    const std::lock_guard guard(device_lock());
    if (used_ + bytes > memory_bytes) return nullptr;
    auto* const block =
        static_cast<unsigned char*>(std::aligned_alloc(alignment, whole_bytes(bytes)));
    if (block == nullptr) return nullptr;
    std::memset(block, unwritten, std::min(bytes, most_filled));
    std::memset(block + bytes, border, whole_bytes(bytes) - bytes);
    blocks_[block] = bytes;
    used_ += bytes;
    return block;
  }
  void give_back(void* pointer) {
    const std::lock_guard guard(device_lock());
    const auto found = blocks_.find(pointer);
    if (found == blocks_.end()) stop("a block is given back that was not taken", 0);
    const size_t bytes = found->second;
    const auto* const block = static_cast<const unsigned char*>(pointer);
    const auto* const end = block + whole_bytes(bytes);
    const auto* const changed =
        std::find_if(block + bytes, end, [](unsigned char byte) { return byte != border; });
    if (changed != end)
      stop("a kernel wrote behind a block, at byte", static_cast<size_t>(changed - block));
    used_ -= bytes;
    blocks_.erase(found);
    std::free(pointer);
  }
  size_t used() const { return used_; }

 private:
  [[noreturn]] static void stop(const char* what, size_t where) {
    std::fprintf(stderr, "emulator: %s %zu\n", what, where);
    std::abort();
  }

  std::unordered_map<void*, size_t> blocks_;
  size_t used_ = 0;
};

Memory& memory() {
  static auto* const all = new Memory;  // tensors of static lifetime are given back later
  return *all;
}

cudaError_t take(void** to, size_t bytes) {
  *to = memory().take(bytes);
  return noted(*to != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
}

}  // namespace

}  // namespace bs::emulator

using namespace bs::emulator;

extern "C" {

cudaError_t cudaMalloc(void** to, size_t bytes) { return take(to, bytes); }
cudaError_t cudaMallocAsync(void** to, size_t bytes, cudaStream_t) { return take(to, bytes); }
cudaError_t cudaMallocFromPoolAsync(void** to, size_t bytes, cudaMemPool_t, cudaStream_t) {
  return take(to, bytes);
}
cudaError_t cudaHostAlloc(void** to, size_t bytes, unsigned) {
  const cudaError_t status = take(to, bytes);
  if (status == cudaSuccess) std::memset(*to, 0, bytes);
  return status;
}
cudaError_t cudaFree(void* block) {
  if (block != nullptr) memory().give_back(block);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) { return cudaFree(block); }
cudaError_t cudaFreeAsync(void* block, cudaStream_t) { return cudaFree(block); }

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(&memory());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  return cudaMemPoolCreate(pool, nullptr);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  const auto used = static_cast<uint64_t>(memory().used());
  std::memcpy(value, &used, sizeof used);
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = memory_bytes;
  *free = memory_bytes - memory().used();
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  submit(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  submit(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"

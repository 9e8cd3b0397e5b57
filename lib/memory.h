#pragma once
/** @file Where bytes come from: one stream-ordered resource a device, replaceable for tests. */
#include <bs/lib/stream.h>

#include <cstddef>
#include <cstdint>

namespace bs {

/** @brief Counts of one device's memory as asked for by tensors, in bytes. */
struct MemoryStatistics {
  int64_t in_use = 0;       ///< bytes of live allocations
  int64_t peak = 0;         ///< highest `in_use` since the last reset
  int64_t allocations = 0;  ///< allocations made since start
  int64_t live = 0;         ///< allocations not yet freed
  int64_t reserved = 0;     ///< bytes held, cached ones included
};

/** @brief A source of memory. Stream-ordered: what is freed on a stream may be handed out again to
 *  work queued on that stream later, without waiting. */
class MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  /** @brief At least `bytes` bytes (> 0), aligned to 256. @throws OutOfMemory. */
  virtual void* allocate(size_t bytes, Stream stream) = 0;
  virtual void deallocate(void* pointer, size_t bytes, Stream stream) noexcept = 0;
  /** @brief Gives cached memory back to the system, but for what is reserved. */
  virtual void trim() {}
  /** @brief Takes memory until it holds `bytes`, which trim() then leaves. @throws OutOfMemory. */
  virtual void reserve(int64_t /*bytes*/) {}
  virtual int64_t reserved() const { return 0; }
};

/** @brief The resource that tensors on `device` use: a caching pool unless replaced. */
MemoryResource& memory_resource(Device device);
/** @brief Replaces the resource of `device` (null restores the pool) and returns the one before.
 * For tests and embedders; a resource must outlive the tensors made from it. */
MemoryResource* set_memory_resource(Device device, MemoryResource* resource);

/** @brief Statistics over whichever resource is set. Thread-safe. */
MemoryStatistics memory_statistics(Device device);
void reset_peak_memory(Device device);
/** @brief Allocations that would exceed `bytes` in use throw OutOfMemory; 0 means no limit. */
void set_memory_limit(Device device, int64_t bytes);

/** @brief How much memory a device's pool takes. */
struct MemoryPoolOptions {
  int64_t initial = 0;  ///< bytes of a GPU that it takes at once and keeps; a CPU's come as needed
  int64_t maximum = 0;  ///< of what tensors hold, as set_memory_limit(); 0: no limit
};
/** @brief Sets both. With `initial` as high as a program's peak, none of its operations waits for
 *  the driver to find memory; trim() leaves as much. @throws OutOfMemory if there is too little;
 *  Error for bytes below 0, and where more are asked for at once than at most. */
void set_memory_pool(Device device, const MemoryPoolOptions& options);

/** @brief Allocates from the current resource and counts it. @throws OutOfMemory naming sizes. */
void* allocate_bytes(size_t bytes, Stream stream);

/** @brief Frees what allocate_bytes gave, from the same resource. */
void free_bytes(void* pointer, size_t bytes, MemoryResource& from, Stream stream) noexcept;

}  // namespace bs

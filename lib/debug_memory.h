#pragma once
/** @file Memory that is watched: who allocated it, and who wrote outside of it. */
#include <bs/lib/memory.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace bs {

/** @brief What one operation has allocated that is not freed. */
struct HeldMemory {
  std::string operation;  ///< and the range around it; empty for none
  int64_t bytes = 0;
  int64_t allocations = 0;
};

/** @brief Puts guards around each allocation and poison into it. Every floating element is a NaN
 *  until a kernel writes it, and again once it is freed. The guards are looked at when memory is
 *  freed; under ASan even reading them fails at once. On a GPU that waits for the stream. */
class DebugMemory final : public MemoryResource {
 public:
  /** @param[in] inner has the memory
   *  @param[in] loud prints each finding to stderr */
  explicit DebugMemory(MemoryResource& inner, bool loud = false);
  ~DebugMemory() override;
  DebugMemory(const DebugMemory&) = delete;
  DebugMemory& operator=(const DebugMemory&) = delete;
  void* allocate(size_t bytes, Stream stream) override;
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override;
  void trim() override { inner_.trim(); }
  void reserve(int64_t bytes) override { inner_.reserve(bytes); }
  int64_t reserved() const override { return inner_.reserved(); }

  /** @brief What was found wrong since the last call. */
  std::vector<std::string> take_findings();
  /** @brief Memory that is held, by operation, the most first. */
  std::vector<HeldMemory> held() const;

 private:
  struct Record;
  void check_guards(std::byte* whole, size_t bytes, Stream stream, const Record* record);
  void find(std::string finding);

  MemoryResource& inner_;
  const bool loud_;
  mutable std::mutex mutex_;
  std::map<void*, std::shared_ptr<Record>> records_;
  std::vector<std::string> findings_;
};

/** @brief Watches what is allocated on `device` from now on, or no more. What is found wrong is
 *  printed to stderr at once; as the program ends, also what it still holds. The environment's
 *  BS_MEMORY_DEBUG=1 does it for all devices from the start. No other thread may allocate
 *  meanwhile. Cost: two passes over each allocation; on a GPU a wait for each tensor that is freed.
 */
void set_memory_debug(Device device, bool on);
/** @brief How the memory of a device is used: by tensors, and by what is cached or cut into pieces
 *  that are too small. Of what was allocated while it is watched, also by which operations. */
std::string memory_report(Device device);

namespace detail {
/// The pool of a device, watched.
MemoryResource& watched_pool(Device device, MemoryResource& pool);
/// Whether any memory is watched: then ranges are told.
bool memory_is_watched();
void enter_range(const char* name);
void leave_range();
}  // namespace detail

}  // namespace bs

#pragma once
/** @file Memory that tells when a kernel writes outside of its tensors or reads what nobody wrote.
 */
#include <bs/lib/memory.h>

#include <mutex>
#include <string>
#include <vector>

namespace bs::test {

/** @brief Puts guard bands around each allocation and poison into it: every floating element is a
 *  NaN until a kernel writes it. The bands are looked at when the memory is freed; under ASan even
 *  reading them fails at once. */
class GuardedMemory final : public MemoryResource {
 public:
  /** @brief Takes memory from the resource that `device` has now. */
  explicit GuardedMemory(Device device) : inner_(memory_resource(device)) {}
  void* allocate(size_t bytes, Stream stream) override;
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override;
  void trim() override { inner_.trim(); }
  int64_t reserved() const override { return inner_.reserved(); }
  /** @brief What was found wrong since the last call. */
  std::vector<std::string> take_findings();

 private:
  void check_bands(std::byte* whole, size_t bytes, Stream stream);
  MemoryResource& inner_;
  std::mutex mutex_;
  std::vector<std::string> findings_;
};

/** @brief Until the end of the scope memory of `device` has no guards, which are set and looked at
 *  from the host: it waits for them. */
class Unguarded {
 public:
  explicit Unguarded(Device device)
      : device_(device), guarded_(set_memory_resource(device, nullptr)) {}
  Unguarded(const Unguarded&) = delete;
  Unguarded& operator=(const Unguarded&) = delete;
  ~Unguarded() { set_memory_resource(device_, guarded_); }

 private:
  Device device_;
  MemoryResource* guarded_;
};

/** @brief Guards the host's memory and that of the device under test, for the whole process; after
 *  each test case looks for bytes written outside and for tensors that outlive it. */
void guard_memory();
/** @brief Whether all was in order; what was not has been printed with the test's name. */
bool memory_in_order();

}  // namespace bs::test

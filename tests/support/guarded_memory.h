#pragma once
/** @file Memory that tells when a kernel writes outside of its tensors or reads what nobody wrote.
 */
#include <bs/lib/debug_memory.h>

namespace bs::test {

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

#pragma once
/** @file What the library asks CUDA's runtime for. The linker sends those calls here first. */
#include <string>
#include <vector>

namespace bs::test {

/** @brief While it lives, notes calls of all threads; one at a time. What cuBLAS asks for itself is
 *  not seen. */
class CallRecorder {
 public:
  CallRecorder();
  ~CallRecorder();
  CallRecorder(const CallRecorder&) = delete;
  CallRecorder& operator=(const CallRecorder&) = delete;

  /** @brief Calls at which the host waits for the device, or may: also those that take memory from
   *  the driver or give it back, and copies of memory that is not pinned. */
  std::vector<std::string> waits() const;
  /** @brief Frees on a stream that was captured of memory that its capture had not taken. */
  int foreign_frees() const;
  /** @brief Frees of any kind, in the order of streams. */
  int frees() const;
};

}  // namespace bs::test

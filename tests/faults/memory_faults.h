#pragma once
/** @file Memory that is not to be had: of the tensors, and of all else that is made by `new`. */
#include <bs/lib/memory.h>

#include <cstdint>
#include <new>

namespace bs::test {

/** @brief Counts allocations of all threads, and lets the one of a number fail, once. */
class MemoryFault {
 public:
  /** @brief The allocation number `fails` from now on, from 0; -1: none. */
  explicit MemoryFault(int64_t fails = -1);
  ~MemoryFault();
  MemoryFault(const MemoryFault&) = delete;
  MemoryFault& operator=(const MemoryFault&) = delete;
  /** @brief Allocations so far. */
  int64_t count() const;
  /** @brief Bytes of the largest of them. */
  int64_t largest() const;

 private:
  class Resource;
  Resource* tensors_;
  MemoryResource* before_;
};

/** @brief Whether `work` runs out of memory when allocation number `point` fails. Every error but
 *  bs::OutOfMemory and, for what is no tensor, std::bad_alloc leaves this function. */
template <class Work>
bool runs_out(int64_t point, Work&& work) {
  const MemoryFault fault(point);
  try {
    work();
  } catch (const OutOfMemory&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

/** @brief The same for work that promises bs::OutOfMemory whatever the memory was for: a
 *  std::bad_alloc leaves this function too. */
template <class Work>
bool reports(int64_t point, Work&& work) {
  const MemoryFault fault(point);
  try {
    work();
  } catch (const OutOfMemory&) {
    return true;
  }
  return false;
}

/** @brief Allocations that `work` makes. */
template <class Work>
int64_t allocations_of(Work&& work) {
  const MemoryFault none;
  work();
  return none.count();
}

}  // namespace bs::test

#pragma once
/** @file Values of a GPU that are made once. */
#include <bs/lib/device.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace bs::cuda {

/** @brief A value for each GPU, made when it is first asked for. That is a load afterwards, since
 *  every operation asks. Never destroyed, as the driver may be gone by then. */
template <class T>
class PerDevice {
 public:
  /** @brief The value of a device that is usable; `make()` gives a pointer to a new one. */
  template <class Make>
  T& get(Device device, const Make& make) {
    Slot& slot = slots_[static_cast<size_t>(device.index())];
    if (T* const made = slot.value.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(slot.mutex);
    if (!slot.value.load(std::memory_order_relaxed))
      slot.value.store(make(), std::memory_order_release);
    return *slot.value.load(std::memory_order_relaxed);
  }

 private:
  struct Slot {
    std::mutex mutex;
    std::atomic<T*> value = nullptr;
  };
  std::array<Slot, 64> slots_;
};

}  // namespace bs::cuda

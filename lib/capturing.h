#pragma once
/** @file Who captures work of a device, for which nobody may wait meanwhile. */
#include <bs/lib/device.h>

#include <mutex>
#include <shared_mutex>

namespace bs {

/** @brief While it lives, this thread captures work of a device for a graph. CUDA ends every
 * capture of a device that any thread waits for as a whole. */
class Capturing {
 public:
  /** @brief Waits for who holds none(). */
  explicit Capturing(Device device);
  ~Capturing();
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  /** @brief While it is held nobody begins to capture on `device`, so that it may be waited for;
   * not held where somebody captures already. */
  static std::unique_lock<std::shared_mutex> none(Device device);

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace bs

#pragma once
/** @file How much memory a part of a program needs. */
#include <bs/lib/device.h>

#include <cstdint>

namespace bs {

/** @brief Measures the peak of a device's memory while it lives. Peaks may be nested: what is found
 *  inside counts for those around it, and for memory_statistics(). Other threads' tensors count
 *  too. */
class PeakMemory {
 public:
  explicit PeakMemory(Device device);
  ~PeakMemory();
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  /** @brief Bytes at the peak so far, beyond those in use when it began. */
  int64_t bytes() const;

 private:
  Device device_;
  int64_t before_ = 0;  ///< in use
  int64_t outer_ = 0;   ///< peak of what is around it
};

}  // namespace bs

#pragma once
/** @file Tables that are made once on a device and used by all streams, while the host waits for
 *  none of it. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <cstdint>
#include <memory>
#include <span>

namespace bs::cuda {

/** @brief `values` as an i32 tensor on `device`, queued on its current stream. `values` may change
 *  as soon as this returns: they were staged. */
Tensor upload(std::span<const int32_t> values, Device device);

/** @brief What is queued on a stream up to now, for other streams to wait for. */
class Milestone {
 public:
  Milestone() = default;
  /** @throws Error while the stream is captured: what a graph computes is not there before it ran,
   *  so what is kept must be made by a run before. */
  explicit Milestone(Stream stream);
  /** @brief Lets `stream`, but not the host, wait; free for the same stream, and once it was
   *  passed. A captured stream does not wait: the run before the capture has. */
  void wait(Stream stream) const;

 private:
  struct Event;
  std::shared_ptr<Event> event_;
};

}  // namespace bs::cuda

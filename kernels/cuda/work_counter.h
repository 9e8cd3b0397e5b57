#pragma once
/** @file Zeroed counters for kernels that hand out work and leave the counters zeroed behind. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Zeroed ints on the stream's device for one launch, which must leave them zero: then no
 *  launch waits for a memset. They are a stream's own, memory of the pool, counted, and go round in
 *  a ring; a stream works in order, so that words come round after the kernel that had them. While
 *  the stream is captured they are memory of the graph's own, since a graph may run beside
 *  anything; a cuda::Graph keeps them zero from replay to replay, any other graph fills them. */
class WorkCounter {
 public:
  /** @brief At most this many words can be had. */
  static constexpr unsigned most = 2048;
  WorkCounter() = default;
  explicit WorkCounter(Stream stream, int words = 2);
  int* get() const { return words_; }

 private:
  Tensor owned_;
  int* words_ = nullptr;
};

/** @brief Frees the rings of a device's streams, each behind what its stream has to do. A stream
 *  takes one again when a launch wants words. */
void release_work_counters(Device device);

}  // namespace bs::cuda

#pragma once
/** @file Zeroed counters for kernels that hand out work and leave the counters zeroed behind. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

namespace bs::cuda {

/** @brief Zeroed ints on the stream's device for one launch, which must leave them zero. Taken
 *  from a ring, so that no launch has to wait for a memset; while the stream is captured they are
 *  memory of the graph's own, since a graph may run beside anything. */
class WorkCounter {
 public:
  /** @brief At most this many words can be had. */
  static constexpr unsigned most = 2048;
  explicit WorkCounter(Stream stream, int words = 2);
  int* get() const { return words_; }

 private:
  Tensor owned_;
  int* words_ = nullptr;
};

}  // namespace bs::cuda

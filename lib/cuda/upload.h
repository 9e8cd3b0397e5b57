#pragma once
/** @file Tables that are made once on a device and used by all streams, while the host waits for
 *  none of it. */
#include <bs/lib/stream.h>
#include <bs/lib/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

namespace bs::cuda {

/** @brief Queues a copy of `bytes` bytes of the host's memory to that of a device, on `stream`.
 *  `from` may change as soon as this returns, and the host waits for nothing that is queued. The
 *  device copies from pinned memory, which the next copies take again. While the stream is captured
 *  the graph has that memory, so that every run of it copies the same bytes.
 *  Cost: a copy on the host; pinned memory, 2 MiB at a time, for as much as is under way. */
void copy_to_device(void* to, const void* from, size_t bytes, Stream stream);

/** @brief Words as an i32 tensor on `device`, queued on its current stream as copy_to_device()
 * does.
 */
Tensor upload_words(std::span<const std::byte> words, Device device);
/** @brief The same, of values of whole words that lie side by side. */
template <std::ranges::contiguous_range Values>
Tensor upload(const Values& values, Device device) {
  using T = std::ranges::range_value_t<Values>;
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int32_t) == 0);
  return upload_words(std::as_bytes(std::span(values)), device);
}

/** @brief What is queued on a stream up to now, for other streams to wait for. Its end lets the
 *  stream wait for those that have: keep it behind the tables in a class, so that they go later. */
class Milestone {
 public:
  Milestone() = default;
  /** @throws Error while the stream is captured. What a graph computes is not there before it ran,
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

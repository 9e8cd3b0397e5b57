#include <bs/lib/record_stream.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace bs {

namespace {

/// Trivially destructible: tensors may be freed after any destructor of ours would have run.
constinit std::atomic<int64_t> recorded_count = 0;

std::mutex& recorded_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
/// By the address of a tensor's first element.
std::map<const std::byte*, std::vector<Stream>>& recorded() {
  static auto* const all = new std::map<const std::byte*, std::vector<Stream>>;
  return *all;
}

}  // namespace

void record_stream(const Tensor& x, Stream stream) {
  BS_CHECK(x.device() == stream.device(), "record_stream: a tensor on {}, a stream of {}",
           x.device(), stream.device());
  if (x.numel() == 0) return;
  const std::lock_guard lock(recorded_mutex());
  std::vector<Stream>& streams = recorded()[static_cast<const std::byte*>(x.data())];
  if (std::ranges::find(streams, stream) != streams.end()) return;
  streams.push_back(stream);
  ++recorded_count;
}

std::vector<Stream> detail::take_recorded(const void* memory, size_t bytes) {
  std::vector<Stream> taken;
  if (recorded_count == 0) return taken;
  const std::lock_guard lock(recorded_mutex());
  const auto* const first = static_cast<const std::byte*>(memory);
  auto at = recorded().lower_bound(first);
  while (at != recorded().end() && at->first < first + bytes) {
    recorded_count -= static_cast<int64_t>(at->second.size());
    for (const Stream& stream : at->second)
      if (std::ranges::find(taken, stream) == taken.end()) taken.push_back(stream);
    at = recorded().erase(at);
  }
  return taken;
}

}  // namespace bs

#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/recording.h>

#include <map>
#include <mutex>
#include <utility>

namespace bs::cuda {

namespace {

/// Of a stream. Words come round as soon as the ring is through, which is safe: launches of a
/// stream follow each other, and each leaves its words zero.
struct Ring {
  static constexpr unsigned size = 4 * WorkCounter::most;
  int* words = nullptr;
  unsigned taken = 0;
};

/// A stream's ring is memory of the device's pool. It lives as long as the program: the driver may
/// be gone when statics are destroyed.
int* take(Stream stream, unsigned count) {
  static std::mutex mutex;
  static auto* const rings = new std::map<std::pair<int, void*>, Ring>;
  const std::lock_guard lock(mutex);
  Ring& ring = (*rings)[{stream.device().index(), stream.handle()}];
  if (!ring.words) {
    constexpr size_t bytes = Ring::size * sizeof(int);
    ring.words = static_cast<int*>(device_pool(stream.device()).allocate(bytes, stream));
    fill_zero(ring.words, bytes, stream);
  }
  if (ring.taken + count > Ring::size) ring.taken = 0;
  int* const words = ring.words + ring.taken;
  ring.taken += count;
  return words;
}

}  // namespace

WorkCounter::WorkCounter(Stream stream, int words) {
  const auto count = static_cast<unsigned>(words);
  BS_CHECK(count <= most, "work counter: {} words are more than {}", words, most);
  if (!is_captured(stream)) {
    words_ = take(stream, count);
    return;
  }
  if (Recording* recording = Recording::current(stream.device())) {
    const Stream before = recording->stream();
    words_ = recording->zeroed(
        words, [before](void* memory, size_t bytes) { fill_zero(memory, bytes, before); });
    return;
  }
  owned_ = Tensor::empty({words}, i32, stream.device());
  words_ = owned_.data<int32_t>();
  fill_zero(words_, count * sizeof(int), stream);
}

}  // namespace bs::cuda

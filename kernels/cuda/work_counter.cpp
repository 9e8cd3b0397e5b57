#include <bs/kernels/cuda/work_counter.h>
#include <bs/lib/counted_memory.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/recording.h>

#include <map>
#include <mutex>
#include <utility>

namespace bs::cuda {

namespace {

/// Of a stream. Words come round as soon as the ring is through. That is safe: launches of a
/// stream follow each other, and each leaves its words zero.
struct Ring {
  static constexpr unsigned size = 4 * WorkCounter::most;
  static constexpr size_t bytes = size * sizeof(int);
  int* words = nullptr;
  unsigned taken = 0;
};

/// Memory of the device's pool, counted with that of tensors. What is not released lives as long as
/// the program: the driver may be gone when statics are destroyed.
struct Rings {
  std::mutex mutex;
  std::map<std::pair<int, void*>, Ring> of_streams;
};

Rings& rings() {
  static auto* const all = new Rings;
  return *all;
}

int* take(Stream stream, unsigned count) {
  Rings& all = rings();
  const std::lock_guard lock(all.mutex);
  Ring& ring = all.of_streams[{stream.device().index(), stream.handle()}];
  if (!ring.words) {
    MemoryResource& pool = device_pool(stream.device());
    ring.words = static_cast<int*>(allocate_counted(Ring::bytes, pool, stream));
    fill_zero(ring.words, Ring::bytes, stream);
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

void release_work_counters(Device device) {
  Rings& all = rings();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.of_streams, [device](const auto& entry) {
    const auto& [stream, ring] = entry;
    if (stream.first != device.index()) return false;
    if (ring.words)
      free_bytes(ring.words, Ring::bytes, device_pool(device), {device, stream.second});
    return true;
  });
}

}  // namespace bs::cuda

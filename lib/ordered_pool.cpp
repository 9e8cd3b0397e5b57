#include <bs/lib/ordered_pool.h>

#include <bs/lib/check.h>
#include <bs/lib/recording.h>

#include <new>

namespace bs {

void* OrderedPool::allocate(size_t bytes, Stream stream) {
  void* pointer = take(bytes, stream);
  // What other streams freed can be had once they are done; no capture may wait for that.
  if (!pointer && !Recording::current() && !memory_.captured(stream)) {
    trim();
    pointer = take(bytes, stream);
  }
  if (!pointer) throw OutOfMemory(out_of_memory_text(device_, bytes, memory_.shares()));
  return pointer;
}

void* OrderedPool::take(size_t bytes, Stream stream) {
  void* const pointer = memory_.take(bytes, stream);
  if (pointer && memory_.captured(stream)) {
    const std::lock_guard lock(mutex_);
    of_graphs_.insert(pointer);
  }
  return pointer;
}

bool OrderedPool::give(void* pointer, Stream stream) noexcept {
  const bool captured = memory_.captured(stream);
  {
    const std::lock_guard lock(mutex_);
    const bool own = of_graphs_.erase(pointer) > 0;
    if (captured && !own) return false;
  }
  return memory_.give(pointer, stream);
}

void OrderedPool::deallocate(void* pointer, size_t, Stream stream) noexcept {
  if (give(pointer, stream)) return;
  // The stream is captured. Or the process ends and the driver is gone: then nobody trims.
  strand(pointer);
}

void OrderedPool::strand(void* pointer) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    stranded_.push_back(pointer);
  } catch (const std::bad_alloc&) {  // the host has no room to remember it
  }
}

void OrderedPool::reserve(int64_t bytes) {
  const int64_t more = bytes - reserved();
  if (more <= 0) return;
  const Stream stream = memory_.stream();
  const auto size = static_cast<size_t>(more);
  deallocate(allocate(size, stream), size, stream);
}

void OrderedPool::trim() {
  memory_.wait();
  std::vector<void*> stranded;
  {
    const std::lock_guard lock(mutex_);
    stranded.swap(stranded_);
  }
  const Stream stream = memory_.stream();
  for (void* pointer : stranded) deallocate(pointer, 0, stream);
  if (!stranded.empty()) memory_.wait();
  memory_.trim();
}

}  // namespace bs

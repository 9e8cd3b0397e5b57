#include <bs/lib/ordered_pool.h>

#include <bs/lib/capturing.h>
#include <bs/lib/check.h>
#include <bs/lib/recording.h>

#include <new>
#include <utility>

namespace bs {

void* OrderedPool::allocate(size_t bytes, Stream stream) {
  // No capture may wait for what other streams do.
  const auto may_wait = [&] { return !Recording::current() && !memory_.captured(stream); };
  size_t size = bytes;
  if (is_small(bytes, stream)) {
    size = FreeBlocks::size_class(bytes);
    if (!memory_.captured(stream)) {  // a graph has memory of its own
      const std::lock_guard lock(mutex_);
      if (void* const kept = small_.take(size)) return kept;
    }
  }
  void* pointer = take(size, stream);
  if (!pointer && may_wait()) {
    trim_to(0);
    pointer = take(size, stream);
  }
  if (!pointer) {
    MemoryShares shares = memory_.shares();
    shares.stranded = stranded();
    throw OutOfMemory(out_of_memory_text(device_, bytes, shares));
  }
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

/// Whether it was freed, by this stream.
bool OrderedPool::give(void* pointer, Stream stream) noexcept {
  const bool captured = memory_.captured(stream);
  {
    const std::lock_guard lock(mutex_);
    const bool own = of_graphs_.erase(pointer) > 0;
    if (captured && !own) return false;
  }
  return memory_.give(pointer, stream);
}

/// Whether it was kept for the stream's next allocations.
bool OrderedPool::keep(void* pointer, size_t bytes, Stream stream) noexcept {
  if (!is_small(bytes, stream) || memory_.captured(stream)) return false;
  const size_t size = FreeBlocks::size_class(bytes);
  const std::lock_guard lock(mutex_);
  return small_.bytes() + size <= most_kept && !of_graphs_.contains(pointer) &&
         small_.keep(pointer, size);
}

/// Frees what was kept.
void OrderedPool::give_kept() {
  FreeBlocks kept;
  {
    const std::lock_guard lock(mutex_);
    std::swap(kept, small_);
  }
  kept.drain([this](void* pointer, size_t size) {
    if (!give(pointer, *keeping_)) strand({pointer, size});
  });
}

void OrderedPool::deallocate(void* pointer, size_t bytes, Stream stream) noexcept {
  if (keep(pointer, bytes, stream)) return;
  // If the process ends and the driver is gone, nobody fetches it.
  if (!give(pointer, stream)) strand({pointer, bytes});
}

void OrderedPool::strand(const Stranded& memory) noexcept {
  stranded_bytes_ += static_cast<int64_t>(memory.bytes);
  try {
    const std::lock_guard lock(mutex_);
    stranded_.push_back(memory);
  } catch (const std::bad_alloc&) {  // the host has no room to remember it: it stays counted
  }
}

/// Frees on another stream what its own did not, once nothing uses it.
void OrderedPool::fetch_stranded() {
  memory_.wait();
  std::vector<Stranded> fetched;
  {
    const std::lock_guard lock(mutex_);
    fetched.swap(stranded_);
  }
  const Stream stream = memory_.stream();
  for (const Stranded& memory : fetched) {
    stranded_bytes_ -= static_cast<int64_t>(memory.bytes);
    if (!give(memory.pointer, stream)) strand(memory);
  }
}

void OrderedPool::reserve(int64_t bytes) {
  if (const int64_t more = bytes - reserved(); more > 0) {
    const Stream stream = memory_.stream();
    const auto size = static_cast<size_t>(more);
    deallocate(allocate(size, stream), size, stream);
  }
  kept_ = bytes;
}

void OrderedPool::trim() { trim_to(kept_); }

void OrderedPool::trim_to(int64_t keep) {
  give_kept();
  if (const auto alone = Capturing::none(device_)) {
    const int64_t before = stranded();
    fetch_stranded();
    if (stranded() != before) memory_.wait();
  }
  memory_.trim(keep);
}

}  // namespace bs

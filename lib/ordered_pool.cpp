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
  const bool small = bytes <= most_small && keeping_ == stream;
  const size_t size = small ? FreeBlocks::size_class(bytes) : bytes;
  if (void* const kept = take_kept(size, stream)) return kept;
  void* pointer = take(size, stream);
  // What this stream has freed needs no waiting.
  if (!pointer && keeping_ == stream && may_wait() && give_kept()) pointer = take(size, stream);
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

/// A block of the stream's that was kept; null for none. A graph has memory of its own.
void* OrderedPool::take_kept(size_t size, Stream stream) noexcept {
  if (keeping_ != stream || memory_.captured(stream)) return nullptr;
  const std::lock_guard lock(mutex_);
  return size <= most_small ? small_.take(size) : large_.take(size);
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

void OrderedPool::give_back(void* pointer, size_t bytes, Stream stream) noexcept {
  // If the process ends and the driver is gone, nobody fetches it.
  if (!give(pointer, stream)) strand({pointer, bytes});
}

/// Whether it was kept for the stream's next allocations.
bool OrderedPool::keep(void* pointer, size_t bytes, Stream stream) noexcept {
  if (keeping_ != stream || memory_.captured(stream)) return false;
  const std::lock_guard lock(mutex_);
  if (of_graphs_.contains(pointer)) return false;
  if (bytes > most_small)
    return bytes <= large_bytes_ / part_of_one && large_.keep({pointer, bytes});
  const size_t size = FreeBlocks::size_class(bytes);
  return small_.bytes() + size <= most_kept && small_.keep(pointer, size);
}

/// Gives large blocks back until so many, of so many bytes, are kept; whether there were any.
bool OrderedPool::give_oldest(size_t count, size_t bytes) noexcept {
  for (bool any = false;; any = true) {
    ExactBlocks::Block oldest;
    {
      const std::lock_guard lock(mutex_);
      if (large_.count() <= count && large_.bytes() <= bytes) return any;
      oldest = large_.take_oldest();
    }
    give_back(oldest.pointer, oldest.bytes, *keeping_);
  }
}

/// Frees what was kept; whether it was anything.
bool OrderedPool::give_kept() {
  FreeBlocks kept;
  {
    const std::lock_guard lock(mutex_);
    std::swap(kept, small_);
  }
  const bool any = kept.bytes() > 0;
  kept.drain([this](void* pointer, size_t size) { give_back(pointer, size, *keeping_); });
  return give_oldest(0, 0) || any;
}

void OrderedPool::deallocate(void* pointer, size_t bytes, Stream stream) noexcept {
  if (keep(pointer, bytes, stream)) {
    if (bytes > most_small) give_oldest(most_large, large_bytes_);
  } else {
    give_back(pointer, bytes, stream);
  }
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
  if (bytes > reserved()) give_kept();
  // What is cached may serve the allocation: only one of all that is not used makes it grow.
  if (const int64_t more = bytes - memory_.used(); more > 0 && bytes > reserved()) {
    const Stream stream = memory_.stream();
    const auto size = static_cast<size_t>(more);
    give_back(allocate(size, stream), size, stream);  // not kept: it serves requests of any size
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

#include <bs/lib/memory.h>

#include <bs/lib/arena.h>
#include <bs/lib/check.h>
#include <bs/lib/counted_memory.h>
#include <bs/lib/debug_memory.h>
#include <bs/lib/environment.h>
#include <bs/lib/free_blocks.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/peak_memory.h>
#include <bs/lib/record_stream.h>
#include <bs/lib/recording.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#if BS_WITH_CUDA
#include <bs/lib/cuda/pool.h>
#endif

namespace bs {

namespace {

constexpr size_t alignment = 256;

/// Host memory, kept in size classes: handing large blocks back to the system and faulting them in
/// again would cost more than most element-wise operations. Under a sanitizer nothing is kept, so
/// that a use after free is seen.
class HostPool final : public MemoryResource {
 public:
  void* allocate(size_t bytes, Stream) override {
    const size_t size = rounded(bytes);
    if (keep_) {
      const std::lock_guard lock(mutex_);
      if (void* const kept = free_.take(size)) return kept;
    }
    void* pointer = std::aligned_alloc(alignment, size);
    if (!pointer) {
      trim();
      pointer = std::aligned_alloc(alignment, size);
    }
    if (!pointer) throw OutOfMemory(out_of_memory_text(Device::cpu(), bytes, shares()));
    reserved_ += static_cast<int64_t>(size);
    return pointer;
  }

  void deallocate(void* pointer, size_t bytes, Stream) noexcept override {
    const size_t size = rounded(bytes);
    if (keep_) {
      const std::lock_guard lock(mutex_);
      if (free_.keep(pointer, size)) return;
    }
    std::free(pointer);
    reserved_ -= static_cast<int64_t>(size);
  }

  void trim() override {
    const std::lock_guard lock(mutex_);
    free_.drain([this](void* pointer, size_t size) {
      std::free(pointer);
      reserved_ -= static_cast<int64_t>(size);
    });
  }

  int64_t reserved() const override { return reserved_; }

 private:
  MemoryShares shares() const {
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    return {.total = page * ::sysconf(_SC_PHYS_PAGES),
            .free = page * ::sysconf(_SC_AVPHYS_PAGES),
            .tensors = memory_statistics(Device::cpu()).in_use,
            .reserved = reserved_};
  }
  static size_t rounded(size_t bytes) {
    if (keep_) return FreeBlocks::size_class(bytes);
    return (bytes + alignment - 1) / alignment * alignment;
  }

#if BS_SANITIZED
  static constexpr bool keep_ = false;
#else
  static constexpr bool keep_ = true;
#endif
  std::mutex mutex_;
  FreeBlocks free_;
  std::atomic<int64_t> reserved_ = 0;
};

/// What the library knows of one device's memory. Trivially destructible: tensors with static
/// storage duration may be freed after any destructor of ours would have run.
struct Account {
  std::atomic<MemoryResource*> replaced = nullptr;
  std::atomic<int64_t> in_use = 0, peak = 0, allocations = 0, live = 0, limit = 0;
};

constexpr size_t max_devices = 65;
constinit Account accounts[max_devices];

/// Those of no device, which negative numbers of GPUs are too, are behind all.
size_t slot(Device device) {
  if (device.is_cpu()) return 0;
  return device.index() < 0 ? max_devices : 1 + static_cast<size_t>(device.index());
}

Account& account(Device device) {
  BS_CHECK(slot(device) < max_devices, "memory: device {} is out of range", device);
  return accounts[slot(device)];
}

/// peak = max(peak, value)
void raise_peak(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak;
  while (value > seen && !peak.compare_exchange_weak(seen, value)) {
  }
}

MemoryResource& plain_pool(Device device) {
  if (device.is_cpu()) {
    static auto* const host = new HostPool;
    return *host;
  }
#if BS_WITH_CUDA
  return cuda::device_pool(device);
#else
  check_usable("memory", device);
  std::abort();  // check_usable has thrown
#endif
}

#if BS_WITH_CUDA
/// The stream that must wait for `user`, so that nobody gets memory of `from` before that has used
/// it. An arena gives memory back on its own, which replays of what is recorded next wait for, too.
/// A recording's stream serves only what is recorded, and is gone with its graph.
Stream order_of(const MemoryResource& from, Stream stream, Stream user) noexcept {
  const auto* const arena = dynamic_cast<const Arena*>(&from);
  return arena && !cuda::goes_into_graph(user) ? arena->stream() : stream;
}
#endif

MemoryResource& pool(Device device) {
  static const bool watched = is_wished("BS_MEMORY_DEBUG");
  MemoryResource& plain = plain_pool(device);
  return watched ? detail::watched_pool(device, plain) : plain;
}

}  // namespace

MemoryResource& memory_resource(Device device) {
  if (const Recording* recording = Recording::current(device)) return recording->memory();
  MemoryResource* replaced = account(device).replaced;
  return replaced ? *replaced : pool(device);
}

MemoryResource* set_memory_resource(Device device, MemoryResource* resource) {
  return account(device).replaced.exchange(resource);
}

MemoryStatistics memory_statistics(Device device) {
  const Account& a = account(device);
  return {a.in_use, a.peak, a.allocations, a.live, memory_resource(device).reserved()};
}

void reset_peak_memory(Device device) {
  Account& a = account(device);
  a.peak = a.in_use.load();
}

PeakMemory::PeakMemory(Device device) : device_(device) {
  Account& a = account(device);
  before_ = a.in_use;
  outer_ = a.peak.exchange(before_);
}

PeakMemory::~PeakMemory() { raise_peak(accounts[slot(device_)].peak, outer_); }

int64_t PeakMemory::bytes() const { return accounts[slot(device_)].peak - before_; }

void set_memory_limit(Device device, int64_t bytes) { account(device).limit = bytes; }

void set_memory_pool(Device device, const MemoryPoolOptions& options) {
  const auto& [initial, maximum] = options;
  BS_CHECK(initial >= 0 && maximum >= 0,
           "memory pool: initial {} and maximum {} are bytes, so neither is below 0", initial,
           maximum);
  BS_CHECK(maximum == 0 || initial <= maximum,
           "memory pool: the initial {} bytes are more than the maximum of {}", initial, maximum);
  memory_resource(device).reserve(initial);
  set_memory_limit(device, maximum);
}

void* allocate_bytes(size_t bytes, Stream stream) {
  return allocate_counted(bytes, memory_resource(stream.device()), stream);
}

void* allocate_counted(size_t bytes, MemoryResource& from, Stream stream) {
  Account& a = account(stream.device());
  const auto size = static_cast<int64_t>(bytes);
  const int64_t limit = a.limit;
  if (limit > 0 && a.in_use + size > limit)
    BS_THROW(OutOfMemory, "memory: {} bytes on {} would pass the limit of {} ({} in use)", bytes,
             stream.device(), limit, a.in_use.load());
  void* pointer = from.allocate(bytes, stream);
  const int64_t now = a.in_use += size;
  raise_peak(a.peak, now);
  ++a.allocations;
  ++a.live;
  return pointer;
}

void free_bytes(void* pointer, size_t bytes, MemoryResource& from, Stream stream) noexcept {
  if (Recording* recording = Recording::current(stream.device());
      recording && recording->keep(pointer, bytes, from, stream))
    return;
  for ([[maybe_unused]] const Stream& user : detail::take_recorded(pointer, bytes)) {
#if BS_WITH_CUDA
    if (user.device().is_cuda()) cuda::follow(order_of(from, stream, user), user);
#endif
  }
  from.deallocate(pointer, bytes, stream);
  Account& a = accounts[slot(stream.device())];
  a.in_use -= static_cast<int64_t>(bytes);
  --a.live;
}

}  // namespace bs

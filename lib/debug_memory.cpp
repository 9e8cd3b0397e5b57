#include <bs/lib/debug_memory.h>

#include <bs/lib/check.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#if BS_WITH_CUDA
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#endif
#if BS_SANITIZED
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(pointer, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(pointer, bytes) ((void)0)
#endif

namespace bs {

/// An allocation. Its operation is known once that begins: a front door allocates results before.
struct DebugMemory::Record {
  size_t bytes;
  std::string within;     ///< the range around it
  std::string operation;  ///< empty until it is known
};

namespace {

constexpr size_t guard = 256;  // keeps the alignment; the guard behind may be longer by a rest
constexpr uint8_t guard_byte = 0xa5;
constexpr uint8_t poison_byte = 0xff;  // NaN in every floating type, -1 in integers

std::atomic<int> watchers = 0;

/// Of records' names, which their own thread sets and any other may read.
std::mutex& names() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

/// Ranges of this thread, the innermost last, and what it allocated since the last of them.
struct Thread {
  std::vector<std::string> ranges;
  std::vector<std::pair<std::weak_ptr<void>, std::string*>> unnamed;

  void name_all(const std::string& name) {
    const std::lock_guard lock(names());
    for (const auto& [record, to] : unnamed)
      if (const std::shared_ptr<void> alive = record.lock()) *to = name;
    unnamed.clear();
  }
};

Thread& thread() {
  thread_local Thread here;
  return here;
}

bool captured([[maybe_unused]] Stream stream) {
#if BS_WITH_CUDA
  if (stream.device().is_cuda()) return cuda::is_captured(stream);
#endif
  return false;
}

void set_bytes(std::byte* to, size_t bytes, uint8_t value, [[maybe_unused]] Stream stream) {
#if BS_WITH_CUDA
  if (stream.device().is_cuda()) return cuda::set_bytes(to, value, bytes, stream);
#endif
  std::fill_n(to, bytes, std::byte{value});
}

size_t back_guard(size_t bytes) { return guard + (guard - bytes % guard) % guard; }

/// Those of one operation together, the most bytes first.
std::vector<HeldMemory> added_up(const std::vector<HeldMemory>& parts) {
  std::map<std::string, HeldMemory> by_name;
  for (const HeldMemory& part : parts) {
    HeldMemory& of = by_name[part.operation];
    of.operation = part.operation;
    of.bytes += part.bytes;
    of.allocations += part.allocations;
  }
  std::vector<HeldMemory> all;
  all.reserve(by_name.size());
  for (auto& [name, held] : by_name) all.push_back(std::move(held));
  std::stable_sort(all.begin(), all.end(),
                   [](const HeldMemory& a, const HeldMemory& b) { return a.bytes > b.bytes; });
  return all;
}

}  // namespace

DebugMemory::DebugMemory(MemoryResource& inner, bool loud) : inner_(inner), loud_(loud) {
  ++watchers;
}

DebugMemory::~DebugMemory() { --watchers; }

void* DebugMemory::allocate(size_t bytes, Stream stream) {
  auto* whole = static_cast<std::byte*>(inner_.allocate(guard + bytes + back_guard(bytes), stream));
  set_bytes(whole, guard, guard_byte, stream);
  set_bytes(whole + guard, bytes, poison_byte, stream);
  set_bytes(whole + guard + bytes, back_guard(bytes), guard_byte, stream);
  if (stream.device().is_cpu()) {
    ASAN_POISON_MEMORY_REGION(whole, guard);
    ASAN_POISON_MEMORY_REGION(whole + guard + bytes, back_guard(bytes));
  }
  constexpr size_t most_unnamed = 64;  // of a thread that never comes to a range
  Thread& here = thread();
  const auto record = std::make_shared<Record>(
      Record{bytes, here.ranges.empty() ? std::string() : here.ranges.back(), {}});
  if (here.unnamed.size() == most_unnamed) here.unnamed.erase(here.unnamed.begin());
  here.unnamed.emplace_back(record, &record->operation);
  const std::lock_guard lock(mutex_);
  records_[whole + guard] = record;
  return whole + guard;
}

void DebugMemory::deallocate(void* pointer, size_t bytes, Stream stream) noexcept {
  std::byte* whole = static_cast<std::byte*>(pointer) - guard;
  const size_t all = guard + bytes + back_guard(bytes);
  if (stream.device().is_cpu()) ASAN_UNPOISON_MEMORY_REGION(whole, all);
  try {
    std::shared_ptr<Record> record;
    {
      const std::lock_guard lock(mutex_);
      const auto found = records_.find(pointer);
      if (found != records_.end()) {
        record = std::move(found->second);
        records_.erase(found);
      }
    }
    // A graph would look at and poison what is there as it runs.
    if (!captured(stream)) {
      check_guards(whole, bytes, stream, record.get());
      set_bytes(whole + guard, bytes, poison_byte, stream);
    }
  } catch (const std::exception& error) {
    find(error.what());
  }
  inner_.deallocate(whole, all, stream);
}

void DebugMemory::find(std::string finding) {
  if (loud_) std::fprintf(stderr, "bs: memory: %s\n", finding.c_str());
  const std::lock_guard lock(mutex_);
  findings_.push_back(std::move(finding));
}

void DebugMemory::check_guards(std::byte* whole, size_t bytes, Stream stream,
                               const Record* record) {
  const StreamGuard on(stream);
  const Device device = stream.device();
  // Needs no memory on the CPU: tests of memory faults free tensors while there is none.
  const auto check = [&](std::byte* from, size_t length, const char* where) {
    std::array<std::byte, 2 * guard> copied;
    const std::byte* seen = from;
    if (device.is_cuda()) {
      const Shape shape{static_cast<int64_t>(length)};
      copy_bytes(Tensor::from_blob(from, shape, u8, device),
                 Tensor::from_blob(copied.data(), shape, u8, Device::cpu()));
      seen = copied.data();
    }
    const auto* const damaged =
        std::find_if(seen, seen + length, [](std::byte b) { return b != std::byte{guard_byte}; });
    if (damaged == seen + length) return;
    const std::string operation = [&] {  // find() locks mutex_, behind which held() locks names
      const std::lock_guard name(names());
      return record ? record->operation : std::string();
    }();
    find(format("{} bytes on {}: written {} (byte {} of the guard band){}", bytes, device, where,
                damaged - seen, operation.empty() ? "" : format("; allocated by {}", operation)));
  };
  check(whole, guard, "before the begin");
  check(whole + guard + bytes, back_guard(bytes), "past the end");
}

std::vector<std::string> DebugMemory::take_findings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}

std::vector<HeldMemory> DebugMemory::held() const {
  std::vector<HeldMemory> all;
  {
    const std::lock_guard lock(mutex_);
    const std::lock_guard name(names());
    for (const auto& [pointer, record] : records_) {
      const Record& r = *record;
      const bool apart = !r.within.empty() && r.within != r.operation && !r.operation.empty();
      const std::string operation = apart                 ? r.operation + " in " + r.within
                                    : r.operation.empty() ? r.within
                                                          : r.operation;
      all.push_back({operation, static_cast<int64_t>(r.bytes), 1});
    }
  }
  return added_up(all);
}

namespace {

/// Watches over a resource. Never destroyed: tensors free their memory there, after main too.
struct Watch {
  MemoryResource* inner;
  std::unique_ptr<DebugMemory> memory;
};

/// Those of the devices that are or were watched.
struct Watched {
  std::mutex mutex;
  std::map<int, std::vector<Watch>> watches;  ///< by the device's number, -1: the CPU
  std::map<int, MemoryResource*> before;      ///< what set_memory_debug took the place of

  static Watched& all() {
    static auto* const watched = new Watched;
    return *watched;
  }
};

int number(Device device) { return device.is_cpu() ? -1 : device.index(); }
Device device_of(int number) { return number < 0 ? Device::cpu() : Device::cuda(number); }

/// What is held of a device's memory, whatever resources it is from.
std::string text_of(Device device, const std::vector<Watch>& watches) {
  constexpr size_t most = 20;
  std::vector<HeldMemory> held;
  for (const Watch& watch : watches)
    for (HeldMemory& of : watch.memory->held()) held.push_back(std::move(of));
  held = added_up(held);
  std::string text;
  for (size_t i = 0; i < std::min(most, held.size()); ++i)
    text += format("  {} in {} of {}\n", in_units(held[i].bytes), held[i].allocations,
                   held[i].operation.empty() ? "no operation" : held[i].operation);
  if (held.size() > most) text += format("  and {} operations more\n", held.size() - most);
  return text.empty() ? text : format("allocated on {} and held:\n{}", device, text);
}

/// As the program ends.
void report_held() {
  Watched& watched = Watched::all();
  const std::lock_guard lock(watched.mutex);
  for (const auto& [device, watches] : watched.watches)
    std::fprintf(stderr, "%s", text_of(device_of(device), watches).c_str());
}

/// The one over `inner`, which is made at the first call. Another resource has another: what was
/// allocated goes back to where it is from.
DebugMemory& watch(Device device, MemoryResource& inner) {
  Watched& watched = Watched::all();
  const std::lock_guard lock(watched.mutex);
  if (watched.watches.empty()) std::atexit(report_held);
  std::vector<Watch>& watches = watched.watches[number(device)];
  const auto found = std::ranges::find(watches, &inner, &Watch::inner);
  if (found != watches.end()) return *found->memory;
  return *watches.emplace_back(Watch{&inner, std::make_unique<DebugMemory>(inner, true)}).memory;
}

/// Whether it is one of these watches.
bool is_watch(Device device, const MemoryResource& resource) {
  Watched& watched = Watched::all();
  const std::lock_guard lock(watched.mutex);
  const auto found = watched.watches.find(number(device));
  return found != watched.watches.end() &&
         std::ranges::any_of(found->second,
                             [&](const Watch& watch) { return watch.memory.get() == &resource; });
}

}  // namespace

void set_memory_debug(Device device, bool on) {
  Watched& watched = Watched::all();
  MemoryResource& now = memory_resource(device);
  if (on == is_watch(device, now)) return;
  if (on) {
    MemoryResource* const before = set_memory_resource(device, &watch(device, now));
    const std::lock_guard lock(watched.mutex);
    watched.before[number(device)] = before;
  } else {
    const std::lock_guard lock(watched.mutex);
    set_memory_resource(device, watched.before[number(device)]);
  }
}

std::string memory_report(Device device) {
  const MemoryStatistics s = memory_statistics(device);
  const int64_t rest = std::max<int64_t>(s.reserved - s.in_use, 0);
  const double share =
      s.reserved > 0 ? 100 * static_cast<double>(rest) / static_cast<double>(s.reserved) : 0;
  std::string text = format(
      "memory of {}: tensors hold {} in {} allocations, {} at most; {} reserved, of which {} "
      "({} %) are cached or cut into pieces that are too small\n",
      device, in_units(s.in_use), s.live, in_units(s.peak), in_units(s.reserved), in_units(rest),
      std::lround(share));
  Watched& watched = Watched::all();
  const std::lock_guard lock(watched.mutex);
  const auto found = watched.watches.find(number(device));
  if (found != watched.watches.end()) text += text_of(device, found->second);
  return text;
}

namespace detail {

MemoryResource& watched_pool(Device device, MemoryResource& pool) { return watch(device, pool); }

bool memory_is_watched() { return watchers.load(std::memory_order_relaxed) > 0; }

void enter_range(const char* name) {
  Thread& here = thread();
  here.name_all(name);
  here.ranges.emplace_back(name);
}

void leave_range() {
  Thread& here = thread();
  if (here.ranges.empty()) return;  // entered before anything was watched
  here.name_all(here.ranges.back());
  here.ranges.pop_back();
}

}  // namespace detail

}  // namespace bs

#include <bs/lib/check.h>
#include <bs/lib/ordered_pool.h>
#include <bs/lib/recording.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace bs;

namespace {

const Device cpu = Device::cpu();

/// A device that writes down what is asked of it. Addresses are numbers that nobody reads at.
class FakeDevice final : public OrderedMemory {
 public:
  void* take(size_t bytes, Stream stream) override {
    calls.push_back("take");
    if (refused-- > 0 || held() + static_cast<int64_t>(bytes) > capacity) return nullptr;
    auto* const pointer = reinterpret_cast<void*>(next);
    next += 256;
    live[pointer] = static_cast<int64_t>(bytes);
    if (capturing.contains(stream.handle())) of_graph.insert(pointer);
    return pointer;
  }
  bool give(void* pointer, Stream stream) noexcept override {
    calls.push_back("give");
    const bool foreign = capturing.contains(stream.handle()) && !of_graph.contains(pointer);
    if (foreign) ++foreign_frees;
    if (foreign || gone.contains(stream.handle())) return false;
    given_on = stream;
    freed_twice += live.erase(pointer) == 0 ? 1 : 0;
    return true;
  }
  bool captured(Stream stream) noexcept override { return capturing.contains(stream.handle()); }
  void wait() override {
    calls.push_back("wait");
    if (broken) BS_THROW(CudaError, "device: broken");
    waits_under_capture += capturing.empty() ? 0 : 1;
  }
  void trim() override { calls.push_back("trim"); }
  Stream stream() override { return {cpu, nullptr}; }
  int64_t reserved() const override { return held(); }
  MemoryShares shares() const override {
    return {.total = capacity, .free = 0, .tensors = held(), .reserved = held()};
  }

  int64_t held() const {
    int64_t bytes = 0;
    for (const auto& [pointer, size] : live) bytes += size;
    return bytes;
  }
  int count(const std::string& call) const {
    return static_cast<int>(std::count(calls.begin(), calls.end(), call));
  }

  std::vector<std::string> calls;
  std::set<void*> capturing, gone;  ///< handles of streams
  std::map<void*, int64_t> live;
  std::set<void*> of_graph;
  int64_t capacity = 1 << 20;
  int refused = 0;  ///< of the next allocations
  bool broken = false;
  Stream given_on;
  int foreign_frees = 0, waits_under_capture = 0, freed_twice = 0;

 private:
  uintptr_t next = 4096;
};

Stream stream(uintptr_t handle) { return {cpu, reinterpret_cast<void*>(handle)}; }

}  // namespace

TEST_CASE("pool: memory from before is not freed into a graph") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  const Stream work = stream(1), other = stream(2);
  void* const before = pool.allocate(1000, work);
  void* const elsewhere = pool.allocate(1000, other);
  device.capturing.insert(work.handle());
  pool.deallocate(before, 1000, work);
  CHECK(device.count("give") == 0);
  CHECK(device.foreign_frees == 0);
  CHECK(pool.stranded() == 1000);
  pool.deallocate(elsewhere, 1000, other);  // of a stream that is not captured
  CHECK(device.count("give") == 1);
  CHECK(device.held() == 1000);
  device.capturing.clear();
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: a graph frees what it has taken itself") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  const Stream work = stream(1);
  void* const before = pool.allocate(1000, work);
  device.capturing.insert(work.handle());
  void* const inside = pool.allocate(1000, work);
  pool.deallocate(inside, 1000, work);
  CHECK(device.count("give") == 1);
  pool.deallocate(before, 1000, work);
  CHECK(device.count("give") == 1);
  CHECK(device.foreign_frees == 0);
  CHECK(device.held() == 1000);
}

TEST_CASE("pool: memory whose stream is gone comes back by trim, once") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const pointer = pool.allocate(1000, stream(1));
  device.gone.insert(stream(1).handle());
  pool.deallocate(pointer, 1000, stream(1));
  CHECK(device.held() == 1000);
  pool.trim();
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: memory whose stream is gone comes back where an allocation finds no room") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const pointer = pool.allocate(1000, stream(1));
  device.gone.insert(stream(1).handle());
  pool.deallocate(pointer, 1000, stream(1));
  CHECK(pool.stranded() == 1000);
  CHECK(pool.reserved() == 1000);
  device.calls.clear();
  device.refused = 1;
  void* const next = pool.allocate(500, stream(2));
  CHECK(device.calls == std::vector<std::string>{"take", "wait", "give", "wait", "trim", "take"});
  CHECK(device.given_on == device.stream());
  CHECK(pool.stranded() == 0);
  CHECK(device.held() == 500);
  pool.deallocate(next, 500, stream(2));
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: while there is room nobody waits for memory whose stream is gone") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const pointer = pool.allocate(1000, stream(1));
  device.gone.insert(stream(1).handle());
  pool.deallocate(pointer, 1000, stream(1));
  device.capturing.insert(stream(2).handle());
  void* const inside = pool.allocate(500, stream(2));
  {
    Recording mine(cpu, {});
    const Recording::Scope scope(mine);
    pool.deallocate(pool.allocate(500, stream(3)), 500, stream(3));
  }
  pool.deallocate(inside, 500, stream(2));
  pool.deallocate(pool.allocate(500, stream(4)), 500, stream(4));
  CHECK(device.count("wait") == 0);
  CHECK(pool.stranded() == 1000);
  device.capturing.clear();
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(pool.stranded() == 0);
}

TEST_CASE("pool: an error while memory of a stream that is gone is fetched back is told") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const pointer = pool.allocate(1000, stream(1));
  device.gone.insert(stream(1).handle());
  pool.deallocate(pointer, 1000, stream(1));
  device.broken = true;
  CHECK_THROWS_WITH_AS(pool.trim(), doctest::Contains("device: broken"), CudaError);
  CHECK(pool.stranded() == 1000);
  device.broken = false;
  device.gone.insert(device.stream().handle());  // nor does that one take it
  pool.trim();
  CHECK(pool.stranded() == 1000);
  device.gone.clear();
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(pool.stranded() == 0);
}

TEST_CASE("pool: an allocation that is refused waits, trims, and tries again") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  device.refused = 1;
  void* const pointer = pool.allocate(1000, stream(1));
  CHECK(device.calls == std::vector<std::string>{"take", "wait", "trim", "take"});
  pool.deallocate(pointer, 1000, stream(1));
  device.calls.clear();
  device.refused = 2;
  CHECK_THROWS_AS(pool.allocate(1000, stream(1)), OutOfMemory);
  CHECK(device.held() == 0);
  CHECK(pool.allocate(1000, stream(1)) != nullptr);
}

TEST_CASE("pool: an allocation that is refused brings back what was stranded") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const before = pool.allocate(1 << 20, stream(1));
  device.capturing.insert(stream(1).handle());
  pool.deallocate(before, 1 << 20, stream(1));
  device.capturing.clear();
  CHECK(pool.allocate(1 << 20, stream(1)) != nullptr);
  CHECK(device.held() == 1 << 20);
}

TEST_CASE("pool: nothing waits for a device while work is captured") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  device.capturing.insert(stream(1).handle());
  device.refused = 1;
  CHECK_THROWS_AS(pool.allocate(1000, stream(1)), OutOfMemory);
  CHECK(device.waits_under_capture == 0);
  CHECK(device.count("trim") == 0);
  device.capturing.clear();
  {
    Recording mine(cpu, {});
    const Recording::Scope scope(mine);
    device.refused = 1;
    CHECK_THROWS_AS(pool.allocate(1000, stream(1)), OutOfMemory);
  }
  CHECK(device.count("wait") == 0);
}

TEST_CASE("pool: whichever allocation of many fails, nothing leaks and the rest go on") {
  for (int failing = 0; failing < 12; ++failing) {
    FakeDevice device;
    OrderedPool pool(cpu, device);
    std::vector<std::pair<void*, Stream>> held;
    int failures = 0;
    for (int i = 0; i < 12; ++i) {
      const Stream on = stream(static_cast<uintptr_t>(1 + i % 3));
      if (i == failing) device.refused = 2;
      try {
        held.emplace_back(pool.allocate(500, on), on);
      } catch (const OutOfMemory&) {
        ++failures;
      }
      if (i == 6) device.capturing.insert(stream(2).handle());
      if (i % 2 != 0 && !held.empty()) {
        pool.deallocate(held.front().first, 500, held.front().second);
        held.erase(held.begin());
      }
    }
    CHECK(failures == 1);
    device.capturing.clear();
    for (const auto& [pointer, on] : held) pool.deallocate(pointer, 500, on);
    pool.trim();
    CHECK(device.held() == 0);
    CHECK(device.foreign_frees == 0);
    CHECK(device.freed_twice == 0);
  }
}

TEST_CASE("pool: what is reserved is taken once and free again") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  pool.reserve(4096);
  CHECK(device.calls == std::vector<std::string>{"take", "give"});
  CHECK(device.live.empty());

  void* const held = pool.allocate(5000, stream(1));
  pool.reserve(4096);  // it holds as much
  CHECK(device.count("take") == 2);
  CHECK_THROWS_AS(pool.reserve(device.capacity + 1), OutOfMemory);
  pool.deallocate(held, 5000, stream(1));
  CHECK(device.live.empty());
}

#include <bs/lib/capturing.h>
#include <bs/lib/check.h>
#include <bs/lib/ordered_pool.h>
#include <bs/lib/recording.h>
#include <bs/tests/support/fake_device.h>
#include <doctest/doctest.h>

#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

const Device cpu = Device::cpu();

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

TEST_CASE("pool: nobody waits for a device of which another thread captures work") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  void* const pointer = pool.allocate(1000, stream(1));
  device.gone.insert(stream(1).handle());
  pool.deallocate(pointer, 1000, stream(1));
  {
    std::promise<void> begun, looked;
    std::thread other([&] {
      const Capturing capturing(cpu);
      begun.set_value();
      looked.get_future().wait();
    });
    begun.get_future().wait();
    device.calls.clear();
    pool.trim();
    CHECK(device.calls == std::vector<std::string>{"trim"});
    device.refused = 1;
    pool.deallocate(pool.allocate(500, stream(2)), 500, stream(2));
    CHECK(device.count("wait") == 0);
    CHECK(pool.stranded() == 1000);
    looked.set_value();
    other.join();
  }
  pool.trim();
  CHECK(device.count("wait") == 2);
  CHECK(pool.stranded() == 0);
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

TEST_CASE("pool: what is cached already counts, and more is reserved beside it") {
  for (const bool keeps : {false, true}) {
    CAPTURE(keeps);
    FakeDevice device;
    device.caching = true;
    const Stream own = device.stream();
    OrderedPool pool(cpu, device, keeps ? std::optional(own) : std::nullopt, 4096);
    pool.deallocate(pool.allocate(1000, own), 1000, own);
    CHECK(pool.reserved() >= 1000);
    pool.reserve(1500);
    CHECK(pool.reserved() >= 1500);
    void* const held = pool.allocate(400, own);
    pool.reserve(3000);
    CHECK(pool.reserved() >= 3000);
    device.calls.clear();
    pool.reserve(3000);  // it is there
    CHECK(device.calls.empty());
    pool.deallocate(held, 400, own);
    pool.trim();
    CHECK(device.held() == 0);
    CHECK(pool.reserved() >= 3000);
  }
}

TEST_CASE("pool: what is reserved is kept by trim, but not from an allocation without room") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  pool.trim();
  CHECK(device.trimmed_to == 0);
  pool.reserve(4096);
  pool.trim();
  CHECK(device.trimmed_to == 4096);
  CHECK_THROWS_AS(pool.reserve(device.capacity + 1), OutOfMemory);
  CHECK(device.trimmed_to == 0);
  pool.trim();
  CHECK(device.trimmed_to == 4096);
  pool.reserve(0);
  pool.trim();
  CHECK(device.trimmed_to == 0);
}

TEST_CASE("pool: threads share it, also where streams are captured or gone") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  device.capturing.insert(stream(2).handle());
  device.gone.insert(stream(3).handle());
  const auto work = [&](Stream first, Stream second) {
    for (int i = 0; i < 200; ++i) {
      void* const one = pool.allocate(500, first);
      void* const two = pool.allocate(300, second);
      std::memset(one, i, 500);
      std::memset(two, i, 300);
      pool.deallocate(one, 500, first);
      pool.deallocate(two, 300, second);
    }
  };
  std::thread other(work, stream(2), stream(3));
  work(stream(3), stream(1));
  other.join();
  CHECK(pool.stranded() == device.held());
  pool.trim();
  CHECK(pool.stranded() == 0);
  CHECK(device.held() == 0);
  CHECK(device.foreign_frees == 0);
  CHECK(device.freed_twice == 0);
}

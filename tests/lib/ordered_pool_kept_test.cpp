// What a pool keeps of what a stream has freed, for what that stream asks for next.
#include <bs/lib/ordered_pool.h>
#include <bs/tests/support/fake_device.h>
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

const Device cpu = Device::cpu();

Stream stream(uintptr_t handle) { return {cpu, reinterpret_cast<void*>(handle)}; }

}  // namespace

TEST_CASE("pool: a small block of the stream that is kept for serves its next allocations") {
  FakeDevice device;
  OrderedPool pool(cpu, device, device.stream());
  const Stream own = device.stream();
  void* const first = pool.allocate(1000, own);
  pool.deallocate(first, 1000, own);
  CHECK(pool.allocate(900, own) == first);  // of its class
  CHECK(device.calls == std::vector<std::string>{"take"});
  void* const second = pool.allocate(900, own);
  CHECK(second != first);
  pool.deallocate(first, 900, own);
  pool.deallocate(second, 900, own);
  CHECK(pool.allocate(1000, stream(1)) != second);  // which may run beside it
  CHECK(device.count("give") == 0);
  pool.trim();
  CHECK(device.count("give") == 2);
  CHECK(device.held() == 1000);
}

TEST_CASE("pool: large blocks, and small ones beyond a number of bytes, are not kept") {
  FakeDevice device;
  device.capacity = int64_t{4} << 30;
  OrderedPool pool(cpu, device, device.stream());
  const Stream own = device.stream();
  constexpr size_t small = OrderedPool::most_small, large = small + 1;
  pool.deallocate(pool.allocate(large, own), large, own);
  CHECK(device.held() == 0);
  constexpr size_t kept = OrderedPool::most_kept / small;
  std::vector<void*> blocks;
  for (size_t i = 0; i < kept + 3; ++i) blocks.push_back(pool.allocate(small, own));
  for (void* const block : blocks) pool.deallocate(block, small, own);
  CHECK(device.held() == OrderedPool::most_kept);
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: a large block that is kept serves the stream's next request of as many bytes") {
  FakeDevice device;
  device.capacity = int64_t{1} << 30;
  OrderedPool pool(cpu, device, device.stream(), size_t{64} << 20);
  const Stream own = device.stream();
  constexpr size_t large = size_t{3} << 20;
  void* const first = pool.allocate(large, own);
  void* const second = pool.allocate(large, own);
  pool.deallocate(first, large, own);
  pool.deallocate(second, large, own);
  CHECK(device.count("give") == 0);
  CHECK(pool.allocate(large - 1, own) != second);
  CHECK(pool.allocate(large, stream(1)) != second);  // which may run beside it
  CHECK(pool.allocate(large, own) == second);        // the last one, which caches may hold
  CHECK(pool.allocate(large, own) == first);
  CHECK(pool.allocate(large, own) != first);
  pool.deallocate(first, large, own);
  pool.trim();
  CHECK(device.count("give") == 1);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: the oldest of large blocks go, beyond a number of them and of their bytes") {
  FakeDevice device;
  device.capacity = int64_t{1} << 30;
  constexpr size_t bytes = size_t{48} << 20, large = bytes / OrderedPool::part_of_one;
  OrderedPool pool(cpu, device, device.stream(), bytes);
  const Stream own = device.stream();
  std::vector<void*> blocks(OrderedPool::part_of_one + 2);
  for (void*& block : blocks) block = pool.allocate(large, own);
  for (void* const block : blocks) pool.deallocate(block, large, own);
  CHECK(device.held() == bytes);
  CHECK(!device.live.contains(blocks[0]));
  CHECK(!device.live.contains(blocks[1]));
  pool.deallocate(pool.allocate(large + 1, own), large + 1, own);  // too large for one
  CHECK(device.held() == bytes);
  CHECK(pool.allocate(large, own) == blocks.back());

  FakeDevice other;
  other.capacity = int64_t{1} << 30;
  OrderedPool many(cpu, other, own, size_t{1} << 30);
  constexpr size_t least = OrderedPool::most_small + 1, more = OrderedPool::most_large + 3;
  std::vector<void*> all;
  for (size_t i = 0; i < more; ++i) all.push_back(many.allocate(least, own));
  for (void* const block : all) many.deallocate(block, least, own);
  CHECK(other.live.size() == OrderedPool::most_large);
  many.trim();
  CHECK(other.held() == 0);
  CHECK(other.freed_twice == 0);
}

TEST_CASE("pool: the stream that has freed large blocks waits for nothing where it needs them") {
  FakeDevice device;
  device.capacity = int64_t{16} << 20;
  OrderedPool pool(cpu, device, device.stream(), size_t{40} << 20);
  const Stream own = device.stream();
  constexpr size_t large = size_t{6} << 20;
  const auto leave_two = [&] {
    void* const one = pool.allocate(large, own);
    pool.deallocate(pool.allocate(large, own), large, own);
    pool.deallocate(one, large, own);
  };
  leave_two();
  void* const most = pool.allocate(size_t{12} << 20, own);
  CHECK(device.count("wait") == 0);
  CHECK(device.held() == 12 << 20);
  pool.deallocate(most, size_t{12} << 20, own);
  leave_two();
  CHECK(pool.allocate(size_t{10} << 20, stream(1)) != nullptr);
  CHECK(device.count("wait") > 0);
  CHECK_THROWS_AS(pool.allocate(size_t{12} << 20, own), OutOfMemory);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: sizes that differ each time hold no more than what large blocks may keep") {
  FakeDevice device;
  constexpr size_t bytes = size_t{32} << 20, first = size_t{2} << 20, step = 4096;
  device.capacity = static_cast<int64_t>(bytes + 2 * first);
  OrderedPool pool(cpu, device, device.stream(), bytes);
  const Stream own = device.stream();
  for (size_t i = 0; i < 200; ++i) {
    const size_t size = first + i * step;
    void* const block = pool.allocate(size, own);
    CHECK(device.held() <= static_cast<int64_t>(bytes + size));
    pool.deallocate(block, size, own);
    CHECK(device.held() <= static_cast<int64_t>(bytes));
  }
  CHECK(device.count("wait") == 0);
  CHECK(pool.reserved() == device.held());
  void* const other = pool.allocate(size_t{16} << 20, stream(1));  // what is kept makes room
  CHECK(device.held() == 16 << 20);
  pool.deallocate(other, size_t{16} << 20, stream(1));
  CHECK(device.held() == 0);
}

TEST_CASE("pool: no large block that is kept goes into a graph, nor one of a graph's to others") {
  FakeDevice device;
  device.capacity = int64_t{1} << 30;
  OrderedPool pool(cpu, device, device.stream(), size_t{16} << 20);
  const Stream own = device.stream();
  constexpr size_t large = size_t{2} << 20;
  void* const kept = pool.allocate(large, own);
  pool.deallocate(kept, large, own);
  device.capturing.insert(own.handle());
  void* const inside = pool.allocate(large, own);
  CHECK(inside != kept);
  device.capturing.clear();
  pool.deallocate(inside, large, own);
  CHECK(device.count("give") == 1);
  CHECK(pool.allocate(large, own) == kept);
  device.capturing.insert(own.handle());
  pool.deallocate(kept, large, own);
  CHECK(pool.stranded() == large);
  CHECK(device.foreign_frees == 0);
}

TEST_CASE("pool: what is reserved serves requests of any size, and is no block that is kept") {
  FakeDevice device;
  device.capacity = int64_t{1} << 30;
  OrderedPool pool(cpu, device, device.stream(), size_t{64} << 20);
  pool.reserve(int64_t{8} << 20);
  CHECK(device.calls == std::vector<std::string>{"take", "give"});
}

TEST_CASE("pool: what is kept goes to an allocation that finds no room") {
  FakeDevice device;
  OrderedPool pool(cpu, device, device.stream());
  const Stream own = device.stream();
  std::vector<void*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool.allocate(size_t{300} << 10, own));
  for (void* const block : blocks) pool.deallocate(block, size_t{300} << 10, own);
  CHECK(device.held() > 900 << 10);
  CHECK(pool.allocate(size_t{800} << 10, stream(1)) != nullptr);
  CHECK(device.count("wait") > 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: nothing that is kept goes into a graph, nor what a graph has freed to others") {
  FakeDevice device;
  OrderedPool pool(cpu, device, device.stream());
  const Stream own = device.stream();
  void* const kept = pool.allocate(1000, own);
  void* const before = pool.allocate(1000, own);
  pool.deallocate(kept, 1000, own);
  device.capturing.insert(own.handle());
  void* const inside = pool.allocate(1000, own);
  CHECK(inside != kept);
  void* const outlives = pool.allocate(1000, own);
  pool.deallocate(inside, 1000, own);  // into the graph, whose it is
  CHECK(device.count("give") == 1);
  pool.deallocate(before, 1000, own);
  CHECK(pool.stranded() == 1000);
  device.capturing.clear();
  pool.deallocate(outlives, 1000, own);
  CHECK(device.count("give") == 2);
  CHECK(pool.allocate(1000, own) == kept);
  CHECK(device.foreign_frees == 0);
  CHECK(device.freed_twice == 0);
}

TEST_CASE("pool: threads share what is kept") {
  FakeDevice device;
  device.capacity = int64_t{1} << 30;
  OrderedPool pool(cpu, device, device.stream(), size_t{16} << 20);
  const Stream own = device.stream();
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      void* const one = pool.allocate(500, own);
      void* const two = pool.allocate(3000, own);
      void* const large = pool.allocate(size_t{2} << 20, own);
      std::memset(one, i, 500);
      std::memset(two, i, 3000);
      std::memset(large, i, 3000);
      pool.deallocate(one, 500, own);
      if (i % 50 == 0) pool.trim();
      pool.deallocate(large, size_t{2} << 20, own);
      pool.deallocate(two, 3000, own);
    }
  };
  std::thread other(work);
  work();
  other.join();
  pool.trim();
  CHECK(device.held() == 0);
  CHECK(device.freed_twice == 0);
}

#include <bs/lib/debug_memory.h>
#include <bs/lib/tensor.h>
#include <bs/lib/trace.h>
#include <bs/tests/support/fake_device.h>
#include <bs/tests/support/resource_scope.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

const Device cpu = Device::cpu();

Tensor bytes(int64_t count) { return Tensor::empty({count}, u8, cpu); }

/// Sees what is in memory as it comes back.
class Last final : public MemoryResource {
 public:
  void* allocate(size_t bytes, Stream) override { return std::aligned_alloc(256, bytes); }
  void deallocate(void* pointer, size_t bytes, Stream) noexcept override {
    const auto* const from = static_cast<const unsigned char*>(pointer);
    poisoned = std::count(from, from + bytes, 0xff);
    std::free(pointer);
  }
  int64_t poisoned = 0;
};

/// Counts what it has handed out.
class Counting final : public MemoryResource {
 public:
  void* allocate(size_t bytes, Stream) override {
    ++allocations;
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void deallocate(void* pointer, size_t, Stream) noexcept override { std::free(pointer); }
  int allocations = 0;
};

}  // namespace

TEST_CASE("debug memory: what is held is told by the operation that allocated it") {
  DebugMemory memory(memory_resource(cpu));
  const ResourceScope scope(cpu, memory);
  Tensor result, scratch, rest, none;
  {
    const TraceRange range("forward");
    result = bytes(1000);  // as a front door does, before the operation is dispatched
    {
      const TraceRange operation("matmul");
      scratch = bytes(300);
    }
    rest = bytes(20);
  }
  none = bytes(1);
  const std::vector<HeldMemory> held = memory.held();
  REQUIRE(held.size() == 4);
  const auto is = [&](size_t i, const char* operation, int64_t size) {
    CHECK(held[i].operation == operation);
    CHECK(held[i].bytes == size);
    CHECK(held[i].allocations == 1);
  };
  is(0, "matmul in forward", 1000);
  is(1, "matmul", 300);
  is(2, "forward", 20);
  is(3, "", 1);
  result = scratch = rest = none = Tensor();
  CHECK(memory.held().empty());
}

TEST_CASE("debug memory: allocations of one operation are added up") {
  DebugMemory memory(memory_resource(cpu));
  const ResourceScope scope(cpu, memory);
  std::vector<Tensor> all;
  for (int i = 0; i < 100; ++i) {
    const TraceRange range("sum");
    all.push_back(bytes(10));
  }
  REQUIRE(memory.held().size() == 1);
  CHECK(memory.held().front().bytes == 1000);
  CHECK(memory.held().front().allocations == 100);
}

TEST_CASE("debug memory: what is freed is poison before anybody has it again") {
  Last last;
  DebugMemory memory(last);
  const ResourceScope scope(cpu, memory);
  {
    const Tensor x = bytes(1000);
    std::fill_n(x.data<uint8_t>(), 1000, uint8_t{1});
  }
  CHECK(last.poisoned == 1000);
}

#if !BS_SANITIZED
TEST_CASE("debug memory: a write outside names who allocated the memory") {
  DebugMemory memory(memory_resource(cpu));
  const ResourceScope scope(cpu, memory);
  {
    Tensor x;
    {
      const TraceRange operation("softmax");
      x = bytes(100);
    }
    x.data<uint8_t>()[100] = 0;
  }
  CHECK(memory.take_findings() ==
        std::vector<std::string>{"100 bytes on cpu: written past the end (byte 0 of the guard "
                                 "band); allocated by softmax"});
}

TEST_CASE("debug memory: damage is found while another thread asks what is held") {
  DebugMemory memory(memory_resource(cpu));
  const Stream stream(cpu, nullptr);
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) memory.held();
  });
  constexpr int times = 3000;
  for (int i = 0; i < times; ++i) {
    void* const damaged = memory.allocate(100, stream);
    static_cast<unsigned char*>(damaged)[100] = 0;
    memory.deallocate(damaged, 100, stream);
  }
  done = true;
  other.join();
  CHECK(memory.take_findings().size() == times);
}
#endif

TEST_CASE("debug memory: the memory it watches is what is reserved") {
  FakeDevice device;
  OrderedPool pool(cpu, device);
  DebugMemory memory(pool);
  memory.reserve(4096);
  CHECK(device.calls == std::vector<std::string>{"take", "give"});
}

TEST_CASE("debug memory: it is switched on and off, and reports") {
  MemoryResource& before = memory_resource(cpu);
  CHECK(memory_report(cpu).find("tensors hold") != std::string::npos);
  set_memory_debug(cpu, true);
  CHECK(&memory_resource(cpu) != &before);
  Tensor x;
  {
    const TraceRange operation("lamb");
    x = bytes(3 << 20);
  }
  CHECK(memory_report(cpu).find("3.00 MiB in 1 of lamb\n") != std::string::npos);
  set_memory_debug(cpu, true);
  set_memory_debug(cpu, false);
  CHECK(&memory_resource(cpu) == &before);
  CHECK(memory_report(cpu).find("lamb") != std::string::npos);  // it is held still
  x = Tensor();
  CHECK(memory_report(cpu).find("lamb") == std::string::npos);
  set_memory_debug(cpu, false);
  CHECK(&memory_resource(cpu) == &before);
}

TEST_CASE("debug memory: it watches the resource that is set as it is switched on") {
  Counting first, second;
  const auto watched = [](Counting& memory) {
    const ResourceScope scope(cpu, memory);
    set_memory_debug(cpu, true);
    Tensor x;
    {
      const TraceRange operation("lion");
      x = bytes(100);
    }
    set_memory_debug(cpu, false);
    CHECK(&memory_resource(cpu) == &memory);
    return x;
  };
  Tensor one = watched(first);
  const Tensor other = watched(second);
  CHECK(first.allocations == 1);
  CHECK(second.allocations == 1);
  CHECK(memory_report(cpu).find("200 bytes in 2 of lion\n") != std::string::npos);
  one = Tensor();  // goes back to where it is from
  one = watched(first);
  CHECK(first.allocations == 2);
  CHECK(second.allocations == 1);
}

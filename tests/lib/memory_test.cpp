#include <bs/lib/counted_memory.h>
#include <bs/lib/memory.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/resource_scope.h>
#include <doctest/doctest.h>

#include <thread>

using namespace bs;
using namespace bs::test;

namespace {

/// Passes on to the pool, and fails from the n-th allocation on.
class FailingResource final : public MemoryResource {
 public:
  explicit FailingResource(int good) : good_(good) {}
  void* allocate(size_t bytes, Stream stream) override {
    if (good_-- <= 0) BS_THROW(OutOfMemory, "memory: {} bytes refused by a test", bytes);
    ++held;
    return pool_.allocate(bytes, stream);
  }
  void deallocate(void* pointer, size_t bytes, Stream stream) noexcept override {
    --held;
    pool_.deallocate(pointer, bytes, stream);
  }
  int held = 0;

 private:
  MemoryResource& pool_ = memory_resource(test_device());
  int good_;
};

Tensor bytes(int64_t count) { return Tensor::empty({count}, u8, test_device()); }

}  // namespace

TEST_CASE("memory that the library keeps counts, and comes from where it is told") {
  const Device device = test_device();
  MemoryResource& pool = memory_resource(device);
  const Stream stream = current_stream(device);
  const MemoryStatistics before = memory_statistics(device);
  FailingResource none(0);  // set for a while: kept memory must not come from it
  const ResourceScope scope(test_device(), none);
  void* kept = allocate_counted(1000, pool, stream);
  CHECK(memory_statistics(device).in_use == before.in_use + 1000);
  CHECK(memory_statistics(device).live == before.live + 1);
  set_memory_limit(device, before.in_use + 1500);
  CHECK_THROWS_AS(allocate_counted(1000, pool, stream), OutOfMemory);
  set_memory_limit(device, 0);
  free_bytes(kept, 1000, pool, stream);
  CHECK(memory_statistics(device).in_use == before.in_use);
  CHECK(memory_statistics(device).live == before.live);
}

TEST_CASE("memory statistics follow tensors") {
  const Device device = test_device();
  reset_peak_memory(device);
  const MemoryStatistics before = memory_statistics(device);
  CHECK(before.peak == before.in_use);
  {
    const Tensor a = bytes(1000);
    const Tensor view = a.slice(0, 10, 20);
    CHECK(memory_statistics(device).in_use == before.in_use + 1000);
    CHECK(memory_statistics(device).live == before.live + 1);
    {
      const Tensor b = bytes(500);
      CHECK(memory_statistics(device).in_use == before.in_use + 1500);
    }
    CHECK(memory_statistics(device).in_use == before.in_use + 1000);
    CHECK(memory_statistics(device).reserved >= memory_statistics(device).in_use - before.in_use);
    const Tensor none = bytes(0);
    CHECK(memory_statistics(device).live == before.live + 1);
  }
  const MemoryStatistics after = memory_statistics(device);
  CHECK(after.in_use == before.in_use);
  CHECK(after.live == before.live);
  CHECK(after.peak == before.in_use + 1500);
  CHECK(after.allocations == before.allocations + 2);
  reset_peak_memory(device);
  CHECK(memory_statistics(device).peak == before.in_use);
}

TEST_CASE("memory is aligned, and a view keeps it alive") {
  for (int64_t count : {1, 7, 255, 257, 100000})
    CHECK(reinterpret_cast<uintptr_t>(bytes(count).data()) % 256 == 0);
  Tensor view;
  {
    const Tensor x = Reference::of(Tensor::from<int32_t>({1, 2, 3})).tensor(i32, test_device());
    view = x.slice(0, 1, 3);
  }
  CHECK(Reference::of(view).values == std::vector<double>{2, 3});
}

TEST_CASE("memory limit") {
  const Device device = test_device();
  const int64_t in_use = memory_statistics(device).in_use;
  set_memory_limit(device, in_use + 1000);
  const Tensor a = bytes(600);
  const std::string text = format("memory: 600 bytes on {} would pass the limit of {} ({} in use)",
                                  device, in_use + 1000, in_use + 600);
  CHECK_THROWS_WITH_AS(bytes(600), text.c_str(), OutOfMemory);
  const Tensor b = bytes(400);
  CHECK_THROWS_AS(bytes(1), OutOfMemory);
  set_memory_limit(device, 0);
  const Tensor c = bytes(600);
  CHECK(memory_statistics(device).in_use == in_use + 1600);
}

TEST_CASE("memory of a device that there cannot be is not the host's") {
  for (const int index : {-1, -2, 1000}) {
    const Device none = Device::cuda(index);
    const std::string text = format("memory: device {} is out of range", none);
    CHECK_THROWS_WITH_AS(set_memory_limit(none, 100), text.c_str(), Error);
    CHECK_THROWS_WITH_AS(memory_statistics(none), text.c_str(), Error);
  }
  CHECK(Tensor::empty({1000}, u8, Device::cpu()).numel() == 1000);
}

TEST_CASE("memory from a resource of the user's") {
  const int64_t before = memory_statistics(test_device()).in_use;
  FailingResource resource(2);
  Tensor outlives;
  {
    const ResourceScope scope(test_device(), resource);
    const Tensor a = bytes(10);
    outlives = bytes(20);
    CHECK(resource.held == 2);
    CHECK_THROWS_WITH_AS(bytes(30), "memory: 30 bytes refused by a test", OutOfMemory);
    CHECK(memory_statistics(test_device()).in_use == before + 30);
  }
  CHECK(resource.held == 1);
  outlives = {};  // goes back to where it came from, though another resource is set by now
  CHECK(resource.held == 0);
  CHECK(memory_statistics(test_device()).in_use == before);
}

TEST_CASE("memory that nobody can have") {
  CHECK_THROWS_WITH_AS(memory_statistics(Device::cuda(64)),
                       "memory: device cuda:64 is out of range", Error);
#if !BS_SANITIZED  // ASan's allocator ends the program instead
  const int64_t in_use = memory_statistics(test_device()).in_use;
  const std::string text = format("memory: {} cannot give ", test_device());
  CHECK_THROWS_WITH_AS(bytes(int64_t{1} << (test_device().is_cpu() ? 56 : 42)),
                       doctest::Contains(text.c_str()), OutOfMemory);
  CHECK(memory_statistics(test_device()).in_use == in_use);
#endif
  CHECK_THROWS_WITH_AS(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}, f32),
                       "tensor: shape [1099511627776, 1099511627776] has too many elements", Error);
}

#if !BS_SANITIZED  // under a sanitizer the host's pool keeps nothing
TEST_CASE("memory given back is used again, or returned by trim") {
  MemoryResource& pool = memory_resource(test_device());
  pool.trim();
  const int64_t base = pool.reserved();
  constexpr int64_t size = 64 << 20;  // more than what a device's pool takes at once
  { const Tensor x = bytes(size); }
  const int64_t kept = pool.reserved();
  CHECK(kept >= size);
  { const Tensor x = bytes(size); }
  CHECK(pool.reserved() == kept);
  synchronize(test_device());
  pool.trim();
  CHECK(pool.reserved() <= base);
}
#endif

TEST_CASE("memory is safe to ask for from many threads") {
  const MemoryStatistics before = memory_statistics(test_device());
  const auto work = [] {
    for (int64_t i = 1; i <= 200; ++i) {
      const Tensor a = bytes(i * 16);
      const Tensor b = bytes(64);
    }
  };
  std::thread one(work);
  std::thread two(work);
  one.join();
  two.join();
  const MemoryStatistics after = memory_statistics(test_device());
  CHECK(after.in_use == before.in_use);
  CHECK(after.live == before.live);
  CHECK(after.allocations == before.allocations + 800);
}

TEST_CASE("memory from the tests' resource is poisoned") {
  for (double value : Reference::of(Tensor::empty({100}, f32, test_device())).values)
    CHECK(std::isnan(value));
}

#if !BS_SANITIZED  // ASan would end the program at the first byte
TEST_CASE("memory written outside of a tensor is found out") {
  DebugMemory memory(memory_resource(test_device()));
  const ResourceScope scope(test_device(), memory);
  const auto write_at = [](const Tensor& x, int64_t at) {
    uint8_t value = 1;
    const Tensor byte = Tensor::from_blob(&value, {1}, u8);
    auto* to = static_cast<uint8_t*>(x.data()) + at;
    copy_bytes(byte, Tensor::from_blob(to, {1}, u8, x.device()));
  };
  for (int64_t size : {1, 100, 256, 1000}) {
    for (int64_t at : {int64_t{0}, size - 1}) write_at(bytes(size), at);
    CHECK(memory.take_findings().empty());
    write_at(bytes(size), size);
    CHECK(memory.take_findings() ==
          std::vector<std::string>{format("{} bytes on {}: written past the end (byte 0 of the "
                                          "guard band)",
                                          size, test_device())});
    write_at(bytes(size), -1);
    CHECK(memory.take_findings() ==
          std::vector<std::string>{format("{} bytes on {}: written before the begin (byte 255 of "
                                          "the guard band)",
                                          size, test_device())});
  }
}
#endif

TEST_CASE("memory of somebody else") {
  const MemoryStatistics before = memory_statistics(Device::cpu());
  float values[6] = {1, 2, 3, 4, 5, 6};
  int released = 0;
  {
    const Tensor x =
        Tensor::from_blob(values, {2, 3}, f32, Device::cpu(), [&released] { ++released; });
    const Tensor row = x.select(0, 1);
    CHECK(Reference::of(row).values == std::vector<double>{4, 5, 6});
    CHECK(memory_statistics(Device::cpu()).live == before.live);
    CHECK(released == 0);
  }
  CHECK(released == 1);
  CHECK_THROWS_WITH_AS(Tensor::from_blob(nullptr, {2}, f32),
                       "from_blob: null pointer for shape [2]", Error);
  CHECK(Tensor::from_blob(nullptr, {0}, f32).numel() == 0);
}

TEST_CASE("memory: a pool's initial bytes and its maximum") {
  const Device cpu = Device::cpu();
  const int64_t in_use = memory_statistics(cpu).in_use;
  set_memory_pool(cpu, {.initial = 1 << 20, .maximum = in_use + (1 << 20)});
  CHECK_THROWS_AS(Tensor::empty({1 << 20}, f32, cpu), OutOfMemory);
  set_memory_pool(cpu, {});
  CHECK(Tensor::empty({1 << 20}, f32, cpu).numel() == 1 << 20);

  const auto refused = [&](MemoryPoolOptions options, const char* text) {
    CHECK_THROWS_WITH_AS(set_memory_pool(cpu, options), doctest::Contains(text), Error);
  };
  refused({.initial = -1}, "memory pool: initial -1 and maximum 0 are bytes");
  refused({.maximum = -5}, "memory pool: initial 0 and maximum -5 are bytes");
  refused({.initial = 9, .maximum = 8}, "the initial 9 bytes are more than the maximum of 8");
}

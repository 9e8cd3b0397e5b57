#include <bs/lib/peak_memory.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

using namespace bs;

namespace {
Tensor bytes(int64_t count) { return Tensor::empty({count}, u8, test::test_device()); }
}  // namespace

TEST_CASE("peak memory of a scope, and of scopes within") {
  const Device device = test::test_device();
  const Tensor held = bytes(5000);
  reset_peak_memory(device);
  const int64_t base = memory_statistics(device).in_use;
  {
    const PeakMemory outer(device);
    CHECK(outer.bytes() == 0);
    bytes(300);
    CHECK(outer.bytes() == 300);
    const Tensor kept = bytes(100);
    {
      const PeakMemory inner(device);
      CHECK(inner.bytes() == 0);
      const Tensor a = bytes(20), b = bytes(30);
      CHECK(inner.bytes() == 50);
    }
    CHECK(outer.bytes() == 300);  // the 150 inside are less
    {
      const PeakMemory inner(device);
      bytes(1000);
      CHECK(inner.bytes() == 1000);
    }
    CHECK(outer.bytes() == 1100);
  }
  CHECK(memory_statistics(device).peak == base + 1100);
}

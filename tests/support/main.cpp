#define DOCTEST_CONFIG_IMPLEMENT
#include <bs/tests/support/beside.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace bs::test {

Device test_device() {
  static const Device device = [] {
    const char* name = std::getenv("BS_TEST_DEVICE");
    return name ? Device::parse(name) : Device::cpu();
  }();
  return device;
}

}  // namespace bs::test

int main(int argc, char** argv) {
  constexpr int skipped = 77;  // what ctest takes for "not run"
  if (bs::test::test_device().is_cuda() && !bs::cuda_available()) {
    std::puts("SKIPPED: no usable GPU");
    return skipped;
  }
  ::setenv("BS_CACHE_DIR", BS_TEST_CACHE, 0);  // never the user's own
  std::optional<bs::test::OtherStream> other;
  std::optional<bs::test::BusyStream> busy;
  if (bs::test::test_device().is_cuda()) {
    if (std::getenv("BS_TEST_OTHER_STREAM")) other.emplace(bs::test::test_device());
    if (std::getenv("BS_TEST_BUSY_STREAM")) busy.emplace(bs::test::test_device());
  }
  bs::test::guard_memory();
  const int failed = doctest::Context(argc, argv).run();
  return failed != 0 || !bs::test::memory_in_order();
}

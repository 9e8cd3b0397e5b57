#include <bs/kernels/device_rates.h>
#include <bs/lib/threads.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <cmath>

using namespace bs;

TEST_CASE("device_rates: what a device reaches, asked for once") {
  const DeviceRates rates = device_rates(test::test_device());
  for (const double rate : {rates.bytes, rates.half, rates.single}) {
    CHECK(std::isfinite(rate));
    CHECK(rate > 1e7);
    CHECK(rate < 1e17);
  }
  const DeviceRates again = device_rates(test::test_device());
  CHECK(again.single == rates.single);
  CHECK(again.bytes == rates.bytes);
}

TEST_CASE("device_rates: a CPU's are those of the caller's threads") {
  const int before = threads();
  set_threads(1);
  const double one = device_rates(Device::cpu()).wide;
  set_threads(before);
  CHECK(one > 1e6);
  CHECK(one <= device_rates(Device::cpu()).single * 2);
}

#include <bs/lib/check.h>
#include <bs/lib/cuda/per_device.h>
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

using namespace bs;

TEST_CASE("per device: a value is made once for each device, whichever threads ask") {
  cuda::PerDevice<const int> values;
  std::atomic<int> made = 0, wrong = 0;
  const auto ask = [&] {
    for (int i = 0; i < 64; ++i) {
      const int& value = values.get(Device::cuda(i), [&] {
        ++made;
        return new const int(i);
      });
      if (value != i) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(ask);
  for (std::thread& thread : threads) thread.join();
  CHECK(made == 64);
  CHECK(wrong == 0);
}

TEST_CASE("per device: a value that could not be made is made by the next who asks") {
  cuda::PerDevice<const int> values;
  const auto fails = []() -> const int* { BS_THROW(Error, "not yet"); };
  CHECK_THROWS_AS(values.get(Device::cuda(), fails), Error);
  CHECK(values.get(Device::cuda(), [] { return new const int(3); }) == 3);
}

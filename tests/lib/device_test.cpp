#include <bs/lib/check.h>
#include <bs/lib/device.h>
#include <bs/lib/stream.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <thread>

using namespace bs;
using namespace bs::test;

TEST_CASE("device by name") {
  CHECK(Device::parse("cpu") == Device::cpu());
  CHECK(Device::parse("cuda") == Device::cuda(0));
  CHECK(Device::parse("cuda:3") == Device::cuda(3));
  CHECK(Device::cuda(3).index() == 3);
  CHECK(Device::cuda().is_cuda());
  CHECK(Device().is_cpu());
  CHECK_FALSE(Device::cuda(0) == Device::cuda(1));
  CHECK_FALSE(Device::cpu() == Device::cuda(0));
  for (const char* name : {"cpu", "cuda:0", "cuda:12"})
    CHECK(to_string(Device::parse(name)) == name);
  for (const char* name :
       {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999"})
    CHECK_THROWS_WITH_AS(
        Device::parse(name),
        format("device: cannot read '{}'; expected cpu, cuda or cuda:N", name).c_str(), Error);
}

TEST_CASE("device that is not there") {
  check_usable("op", Device::cpu());
  CHECK(cuda_available() == (cuda_device_count() > 0));
#if BS_WITH_CUDA
  const int count = cuda_device_count();
  for (const int index : {count, -1})
    CHECK_THROWS_WITH_AS(
        check_usable("op", Device::cuda(index)),
        format("op: device cuda:{} is not there; {} GPUs are usable", index, count).c_str(), Error);
#else
  CHECK(cuda_device_count() == 0);
  CHECK_THROWS_WITH_AS(check_usable("op", Device::cuda(0)),
                       "op: this build has no CUDA (device cuda:0)", Error);
#endif
}

TEST_CASE("stream of a device") {
  const Stream cpu = current_stream(Device::cpu());
  CHECK(cpu.device() == Device::cpu());
  CHECK(cpu.handle() == nullptr);
  cpu.synchronize();
  synchronize(test_device());
  const Stream stream = current_stream(test_device());
  CHECK(stream.device() == test_device());
  CHECK(stream == current_stream(test_device()));
  {
    const StreamGuard guard(cpu);
    CHECK(current_stream(Device::cpu()) == cpu);
  }
}

TEST_CASE("stream guard holds for its thread and scope" * doctest::skip(!test_device().is_cuda())) {
  const Device device = test_device();
  const Stream before = current_stream(device), legacy(device, nullptr);
  Stream usual = before;  // of a thread that has no guard
  std::thread([&] { usual = current_stream(device); }).join();
  {
    const StreamGuard guard(legacy);
    CHECK(current_stream(device) == legacy);
    std::thread([&] { CHECK(current_stream(device) == usual); }).join();
    {
      const StreamGuard inner(usual);
      CHECK(current_stream(device) == usual);
    }
    CHECK(current_stream(device) == legacy);
  }
  CHECK(current_stream(device) == before);
}

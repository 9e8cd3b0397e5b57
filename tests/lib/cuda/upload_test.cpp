#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/upload.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/streams.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

using namespace bs;
using namespace bs::cuda;

namespace {

/// A stream beside the library's own.
struct OtherStream {
  explicit OtherStream(Device on) : device(on) {
    BS_CUDA_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  }
  OtherStream(const OtherStream&) = delete;
  OtherStream& operator=(const OtherStream&) = delete;
  ~OtherStream() { CHECK(cudaStreamDestroy(handle) == cudaSuccess); }
  Stream stream() const { return {device, handle}; }

  Device device;
  cudaStream_t handle = nullptr;
};

}  // namespace

TEST_CASE("upload copies, and what it copied from may change at once") {
  const Device device = test::test_device();
  for (const size_t size : {0UL, 1UL, 1000UL, 300000UL}) {
    std::vector<int32_t> values(size);
    std::iota(values.begin(), values.end(), 7);
    const std::vector<int32_t> before = values;
    const Tensor copy = upload(values, device);
    std::fill(values.begin(), values.end(), -1);
    const Tensor back = copy.to(Device::cpu());
    REQUIRE(back.numel() == static_cast<int64_t>(size));
    CHECK(std::equal(before.begin(), before.end(), back.data<int32_t>()));
  }
}

TEST_CASE("upload waits for nothing that is queued, however much there is to copy" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  for (const size_t size : {100UL, 300000UL, 3000000UL}) {
    std::vector<int32_t> values(size, 1);
    // Memory of this size is there from now on: to take more of it may have to wait.
    for (int i = 0; i < 3; ++i) upload(values, device).to(Device::cpu());
    test::HeldStream held(current_stream(device));
    std::vector<Tensor> copies;
    for (int i = 0; i < 3; ++i) {
      std::fill(values.begin(), values.end(), i);
      copies.push_back(upload(values, device));
    }
    CHECK(held.release());
    for (int i = 0; i < 3; ++i) {
      const Tensor back = copies[static_cast<size_t>(i)].to(Device::cpu());
      CHECK(std::count(back.data<int32_t>(), back.data<int32_t>() + back.numel(), i) ==
            back.numel());
    }
  }
}

TEST_CASE("a copy in a graph is of the same bytes in every run" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  const Stream stream = current_stream(device);
  constexpr int64_t size = 100000;
  const Tensor to = Tensor::empty({size}, i32, device);
  std::vector<int32_t> values(size, 5);
  const test::Recorded copying(stream, [&] {
    copy_to_device(to.data(), values.data(), to.bytes(), stream);
    std::fill(values.begin(), values.end(), 6);
  });
  for (int run = 0; run < 3; ++run) {
    const Tensor other = upload(values, device);  // does not take the graph's memory
    fill_zero(to.data(), to.bytes(), stream);
    copying.run();
    const Tensor back = to.to(Device::cpu()), beside = other.to(Device::cpu());
    CHECK(std::count(back.data<int32_t>(), back.data<int32_t>() + size, 5) == size);
    CHECK(std::count(beside.data<int32_t>(), beside.data<int32_t>() + size, 6) == size);
  }
}

TEST_CASE("a milestone of nothing, and one of the host, are passed") {
  const Stream stream = current_stream(test::test_device());
  Milestone().wait(stream);
  const Stream host = current_stream(Device::cpu());
  Milestone(host).wait(stream);
}

TEST_CASE("a milestone is seen from other streams, and none is set in a capture" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const OtherStream other(device);
  for (int run = 0; run < 20; ++run) {
    const std::vector<int32_t> values(1U << 20, run);
    const Tensor copy = upload(values, device);
    const Milestone made(current_stream(device));
    made.wait(other.stream());
    made.wait(other.stream());
    const StreamGuard guard(other.stream());
    const Tensor back = copy.to(Device::cpu());
    CHECK(std::count(back.data<int32_t>(), back.data<int32_t>() + back.numel(), run) ==
          back.numel());
  }
  BS_CUDA_CHECK(cudaStreamBeginCapture(other.handle, cudaStreamCaptureModeThreadLocal));
  CHECK_THROWS_AS(Milestone{other.stream()}, Error);
  cudaGraph_t graph = nullptr;
  BS_CUDA_CHECK(cudaStreamEndCapture(other.handle, &graph));
  BS_CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_CASE("tables that go with their milestone stay until other streams have used them" *
          doctest::skip(!test::test_device().is_cuda())) {
  struct Tables {
    Tensor words;
    Milestone made;
  };
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  constexpr int64_t size = int64_t{1} << 18;
  const OtherStream other(device);
  const Tensor y = Tensor::empty({size}, i32, device);
  auto tables = std::make_unique<Tables>(
      Tables{upload(std::vector<int32_t>(size, 7), device), Milestone(current_stream(device))});
  synchronize(device);
  tables->made.wait(current_stream(device));
  {
    test::HeldStream held(other.stream());
    for (int i = 0; i < 2; ++i) tables->made.wait(other.stream());
    BS_CUDA_CHECK(cudaMemcpyAsync(y.data(), tables->words.data(), y.bytes(),
                                  cudaMemcpyDeviceToDevice, other.handle));
    tables.reset();
    const Tensor z = Tensor::empty({size}, i32, device);  // has the memory
    fill_zero(z.data(), z.bytes(), current_stream(device));
    CHECK(held.release());
  }
  synchronize(device);
  const Tensor back = y.to(Device::cpu());
  CHECK(std::count(back.data<int32_t>(), back.data<int32_t>() + size, 7) == size);
}

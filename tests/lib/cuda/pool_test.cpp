#include <bs/kernels/fill.h>
#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/handles.h>
#include <bs/lib/cuda/launch.h>
#include <bs/lib/cuda/pool.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/record_stream.h>
#include <bs/lib/stream_pool.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/guarded_memory.h>
#include <bs/tests/support/streams.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("memory that was freed while its stream was captured comes back by trim" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  constexpr int64_t size = int64_t{1} << 30;
  MemoryResource& pool = device_pool(device);
  pool.trim();
  const int64_t before = pool.reserved();
  Tensor x = Tensor::empty({size}, u8, device);
  const test::Recorded nothing(current_stream(device), [&] { x = Tensor(); });
  CHECK(pool.reserved() >= before + size);
  pool.trim();
  CHECK(pool.reserved() == before);
}

TEST_CASE("a pool keeps its initial bytes when it is trimmed, until they are given up" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  MemoryResource& pool = device_pool(device);
  pool.trim();
  const int64_t before = pool.reserved(), initial = before + (int64_t{1} << 30);
  set_memory_pool(device, {.initial = initial});
  pool.trim();
  CHECK(pool.reserved() >= initial);
  set_memory_pool(device, {});
  pool.trim();
  CHECK(pool.reserved() == before);
}

TEST_CASE("streams of the library are there as often as they are asked for" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  std::set<void*> handles;
  for (int i = 0; i < 100; ++i) handles.insert(next_stream(device).handle());
  CHECK(handles.size() == 32);
  CHECK(!handles.contains(current_stream(device).handle()));
  const Stream other = next_stream(device);
  const StreamGuard on(other);
  CHECK(current_stream(device) == other);
  CHECK(full({3}, 2.0, f32, device).select(0, 1).item() == 2);
}

namespace {

/// Frees memory of `device` that a stream of it, which is held up, reads.
void check_recorded(Device device) {
  const test::Unguarded memory(device);
  constexpr int64_t size = int64_t{1} << 20;
  const Stream other = next_stream(device);
  auto* const handle = native(other);
  const Tensor y = Tensor::empty({size}, u8, device);
  Tensor x = Tensor::empty({size}, u8, device);
  set_bytes(x.data(), 7, size, current_stream(device));
  synchronize(device);
  {
    test::HeldStream held(other);
    BS_CUDA_CHECK(cudaMemcpyAsync(y.data(), x.data(), size, cudaMemcpyDeviceToDevice, handle));
    record_stream(x, other);
    x = Tensor();
    const Tensor z = Tensor::empty({size}, u8, device);
    fill_zero(z.data(), size, current_stream(device));
    CHECK(held.release());
  }
  synchronize(device);
  other.synchronize();
  const Tensor host = y.to(Device::cpu());
  CHECK(std::count(host.data<uint8_t>(), host.data<uint8_t>() + size, 7) == size);
}

}  // namespace

TEST_CASE("memory recorded for another stream is not handed out before that has used it" *
          doctest::skip(!test::test_device().is_cuda())) {
  check_recorded(test::test_device());
}

TEST_CASE("nor is that of a GPU that is not the current one" *
          doctest::skip(!test::test_device().is_cuda() || cuda_device_count() < 2)) {
  const DeviceGuard current(Device::cuda(0));
  check_recorded(Device::cuda(1));
}

TEST_CASE("memory that another stream has freed is waited for before an allocation fails" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  device_pool(device).trim();
  size_t free = 0, total = 0;
  BS_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const auto most = static_cast<int64_t>(free) / 10 * 6;
  cudaStream_t handle = nullptr;
  BS_CUDA_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  {
    const StreamGuard on({device, handle});
    Tensor::empty({most}, u8, device);
  }
  CHECK(Tensor::empty({most}, u8, device).numel() == most);
  CHECK_THROWS_WITH_AS(Tensor::empty({static_cast<int64_t>(total) * 2}, u8, device),
                       doctest::Contains("memory: cuda:0 cannot give"), OutOfMemory);
  BS_CUDA_CHECK(cudaStreamDestroy(handle));
  device_pool(device).trim();
}

TEST_CASE("a capture of another thread goes on while this one waits and takes memory" *
          doctest::skip(!test::test_device().is_cuda())) {
  const Device device = test::test_device();
  const test::Unguarded memory(device);
  cudaStream_t handle = nullptr;
  BS_CUDA_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  BS_CUDA_CHECK(cudaStreamBeginCapture(handle, cudaStreamCaptureModeGlobal));
  std::string error;
  const auto behind = [&](const char* step) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const bool asked = cudaStreamIsCapturing(handle, &status) == cudaSuccess;
    if (error.empty() && !(asked && status == cudaStreamCaptureStatusActive)) error = step;
  };
  std::thread([&] {
    try {
      const Tensor x = full({1000}, 2.0, f32, device);
      behind("memory and a launch ended it");
      const Tensor y = x.to(Device::cpu()).to(device);
      behind("copies ended it");
      synchronize(device);
      behind("a wait ended it");
      free_memory(device);
      behind("a question ended it");
      cublas_handle(next_stream(device));
      behind("a handle of cuBLAS ended it");
      if (y.select(0, 999).item() != 2) error = "the copies did not run";
      behind("a look at a number ended it");
    } catch (const std::exception& e) {
      error = e.what();
    }
  }).join();
  behind("the end of a thread that has a handle ended it");
  CHECK(error == "");
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(handle, &graph) == cudaSuccess);
  if (graph) cudaGraphDestroy(graph);
  BS_CUDA_CHECK(cudaStreamDestroy(handle));
}

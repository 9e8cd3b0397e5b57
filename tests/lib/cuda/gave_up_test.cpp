#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/lib/cuda/gave_up.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr const char* waiting = R"(
#define BS_MOST_POLLS 1000
#include <bs/kernels/cuda/device/ptx/acquire.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>
using namespace bs::cuda::device;
extern "C" __global__ void waiting(const int* word) {
  for (Patience patience; load_acquire(word) != 1;) patience.spend();
}
)";

/// Waits for a word that is `value` for ever.
void wait_for_one(int value, Device device) {
  const Tensor word = Tensor::from<int32_t>({value}, {1}).to(device);
  const jit::Kernel& kernel = jit::kernel({"waiting", waiting, device_headers()}, device);
  jit::launch(kernel, {.grid = dim3(1), .block = dim3(1)}, current_stream(device),
              word.data<int32_t>());
  synchronize(device);
}

}  // namespace

TEST_CASE("no kernel gives up unasked") {
  const unsigned first = gave_up_report("a", test::test_device()).number;
  CHECK(gave_up_report("b", test::test_device()).number == first + 1);
  CHECK(kernel_that_gave_up().empty());
  check_gave_up();
}

TEST_CASE("a kernel that gives up, for a process of its own" * doctest::skip()) {
  wait_for_one(1, test::test_device());
  try {
    wait_for_one(0, test::test_device());
  } catch (const CudaError& e) {
    std::fprintf(stderr, "caught: %s\n", e.what());
    std::_Exit(7);  // the driver is of no more use
  }
}

TEST_CASE("a wait without end ends in an error that names the kernel" *
          doctest::skip(!test::test_device().is_cuda())) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const test::Scratch folder;
  const std::string log = folder / "log";
  const int status =
      std::system(("'" + self + "' -ns -tc='a kernel that gives up*' >'" + log + "' 2>&1").c_str());
  const std::string text = test::read_file(log);
  CAPTURE(text);
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(text.find("caught: kernel waiting on cuda:0: its blocks waited") != std::string::npos);
}

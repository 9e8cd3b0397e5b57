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
#include <utility>

using namespace bs;
using namespace bs::cuda;

namespace {

/// Two kernels that wait for a word to be 1.
constexpr const char* header = R"(
#define BS_MOST_POLLS 1000
#include <bs/kernels/cuda/device/ptx/acquire.cuh>
#include <bs/kernels/cuda/device/ptx/patience.cuh>
using namespace bs::cuda::device;
)";
constexpr const char* waiting = R"(
extern "C" __global__ void waiting(const int* word) {
  for (Patience patience; load_acquire(word) != 1;) patience.spend();
}
)";
constexpr const char* going_on = R"(
extern "C" __global__ void going_on(const int* word) {
  for (Patience patience; load_acquire(word) != 1;)
    if (!patience.lasts()) break;
}
)";

/// Has a kernel wait for a word that is `value` for ever.
void wait_for_one(const char* name, const char* code, int value, Device device) {
  const Tensor word = Tensor::from<int32_t>({value}, {1}).to(device);
  const jit::Kernel& kernel =
      jit::kernel({name, std::string(header) + code, device_headers()}, device);
  jit::launch(kernel, {.grid = dim3(1), .block = dim3(1)}, current_stream(device),
              word.data<int32_t>());
  synchronize(device);
}

/// Says what comes of that, and ends the process, for which a GPU is then of no more use.
void wait_in_vain(const char* name, const char* code) {
  const Device device = test::test_device();
  wait_for_one(name, code, 1, device);
  try {
    wait_for_one(name, code, 0, device);
  } catch (const CudaError& e) {
    std::fprintf(stderr, "caught: %s\n", e.what());
    std::_Exit(7);
  }
}

/// What a process says and returns that runs those test cases of this program.
std::pair<int, std::string> run_alone(const std::string& cases) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const test::Scratch folder;
  const std::string log = folder / "log";
  const int status =
      std::system(("'" + self + "' -ns -tc='" + cases + "' >'" + log + "' 2>&1").c_str());
  return {WEXITSTATUS(status), test::read_file(log)};
}

}  // namespace

TEST_CASE("no kernel gives up unasked") {
  const unsigned first = gave_up_report("a", test::test_device()).number;
  CHECK(gave_up_report("b", test::test_device()).number == first + 1);
  CHECK(kernel_that_gave_up().empty());
  check_gave_up();
}

TEST_CASE("a kernel that gives up, for a process of its own" * doctest::skip()) {
  wait_in_vain("waiting", waiting);
}

TEST_CASE("a kernel that goes on, for a process of its own" * doctest::skip()) {
  wait_in_vain("going_on", going_on);
}

TEST_CASE("a wait without end ends in an error that names the kernel" *
          doctest::skip(!test::test_device().is_cuda())) {
  for (const auto& [cases, name] : {std::pair("a kernel that gives up*", "waiting"),
                                    std::pair("a kernel that goes on*", "going_on")}) {
    const auto [status, text] = run_alone(cases);
    CAPTURE(text);
    CHECK(status == 7);
    CHECK(text.find(format("caught: kernel {} on cuda:0: its blocks waited", name)) !=
          std::string::npos);
  }
}

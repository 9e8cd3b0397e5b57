#include <bs/kernels/matmul.h>
#include <bs/lib/check.h>
#include <bs/lib/cuda/jit.h>
#include <bs/lib/cuda/loaded.h>
#include <bs/lib/tensor.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace bs;

namespace {

// A process loads a library once. So a ctest of its own sets this to a folder that is not there.
const char* const folder = std::getenv("BS_CUDA_LIBRARIES");

template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const CudaError& e) {
    return e.what();
  }
  return "nothing thrown";
}

}  // namespace

TEST_CASE("loaded: each function is found, by threads at once" * doctest::skip(folder != nullptr)) {
  std::vector<std::thread> threads;
  std::vector<int> majors(4);
  for (int& major : majors)
    threads.emplace_back([&major] {
      int minor = 0;
      cuda::cublas();
      cuda::cublas_lt();
      cuda::nvrtc().version(&major, &minor);
    });
  for (std::thread& thread : threads) thread.join();
  for (const int major : majors) CHECK(major == majors[0]);
  CHECK(majors[0] >= 12);
  CHECK(std::string_view(cuda::cublas().status_string(CUBLAS_STATUS_NOT_SUPPORTED)).size() > 4);
  CHECK(cuda::nvrtc().error_string(NVRTC_SUCCESS) == std::string_view("NVRTC_SUCCESS"));
}

TEST_CASE("loaded: an error names what is missing" * doctest::skip(folder == nullptr)) {
  const auto names = [](const std::string& text, const char* product, const std::string& library) {
    CAPTURE(text);
    CHECK(text.starts_with(product));
    CHECK(text.find(std::string(folder) + "/" + library + ".so.") != std::string::npos);
    CHECK(text.find("No such file") != std::string::npos);
    CHECK(text.find("Install the CUDA toolkit") != std::string::npos);
  };
  for (int i = 0; i < 2; ++i) {  // each call tries anew
    names(message([] { cuda::cublas(); }), "cuBLAS is needed", "libcublas");
    names(message([] { cuda::cublas_lt(); }), "cuBLASLt is needed", "libcublasLt");
    names(message([] { cuda::nvrtc(); }), "NVRTC is needed", "libnvrtc");
  }
  names(message([] { cuda::jit::compiles_for(90); }), "NVRTC is needed", "libnvrtc");
  const Tensor a = Tensor::from<double>({1, 2}, {1, 2}), b = Tensor::from<double>({3, 4}, {2, 1});
  CHECK(matmul(a, b).item() == 11);  // the CPU needs none of them
}

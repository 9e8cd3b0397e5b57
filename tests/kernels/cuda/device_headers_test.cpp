#include <bs/kernels/cuda/jit/device_headers.h>
#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

using namespace bs::cuda;

TEST_CASE("device headers: each compiles alone, without any file of the CUDA toolkit") {
  for (const int capability : {80, 90})
    for (const jit::Header& header : device_headers()) {
      if (header.name.ends_with(".hpp")) continue;  // parts of CUDA's .h files
      CAPTURE(std::string(header.name));
      const std::string code = "#include <" + std::string(header.name) +
                               ">\nextern \"C\" __global__ void k(int* x) { *x = 1; }\n";
      CHECK_NOTHROW(jit::compile({"k", code, device_headers()}, capability));
    }
}

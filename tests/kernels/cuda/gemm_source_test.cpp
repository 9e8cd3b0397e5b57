#include <bs/kernels/cuda/device_headers.h>
#include <bs/tests/kernels/gemm_cases.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

/// Without a GPU: the kernel compiles, fits its registers and touches no local memory.
void compiles(const GemmCase& c, int capability) {
  const GemmOperation operation(c.description);
  CAPTURE(c.name);
  CAPTURE(operation.key());
  const jit::Binary binary = jit::compile(
      {kernel_name(c.description), operation.to_source(), device_headers()}, capability);
  CHECK(binary.resources.spill_bytes == 0);
  CHECK(binary.resources.local_bytes == 0);
  // What ptxas says of wgmma that it must serialise, and of registers that it does not hand over.
  CHECK_MESSAGE(binary.log.find("(C75") == std::string::npos, binary.log);
}

}  // namespace

TEST_CASE("gemm kernels: PyCUTLASS' examples compile without spills") {
  for (const int capability : {80, 90})
    for (const GemmCase& c : example_cases()) compiles(c, capability);
}

TEST_CASE("gemm kernels: every portable instruction and layout compiles without spills") {
  for (const GemmCase& c : portable_cases()) compiles(c, 90);
}

TEST_CASE("gemm kernels: warpgroups' compile without spills") {
  for (const GemmCase& c : warpgroup_cases()) compiles(c, 90);
}

TEST_CASE("gemm kernels: the text of a description stays what it was") {
  const auto c = example_cases().front();
  const GemmOperation one(c.description), again(c.description);
  CHECK(one.to_source() == again.to_source());
  CHECK(one.key() == again.key());
  GemmDescription other = c.description;
  other.tile.stages = 3;
  CHECK(GemmOperation(other).key() != one.key());
}

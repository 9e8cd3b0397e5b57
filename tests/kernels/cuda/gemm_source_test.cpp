#include <bs/kernels/cuda/block_sparse/gemm_blocks.h>
#include <bs/kernels/cuda/jit/device_headers.h>
#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;
using namespace bs::test;

namespace {

jit::Source source_of(const GemmCase& c) {
  const GemmOperation operation(c.description);
  return {kernel_name(c.description), operation.to_source(), device_headers()};
}

jit::Source join_source_of(const GemmDescription& d) {
  return {join_name(d), to_join_source(d), device_headers()};
}

/// Those of the cases that a GPU of this compute capability can run.
std::vector<GemmCase> for_capability(std::vector<GemmCase> cases, int capability) {
  std::erase_if(cases,
                [&](const GemmCase& c) { return !runs_on(c.description.tile.math, capability); });
  return cases;
}

}  // namespace

TEST_CASE("gemm kernels: PyCUTLASS' examples compile without spills") {
  for (const int capability : {80, 90, 100})
    check_kernels(for_capability(example_cases(), capability), source_of, 7, {capability});
}

TEST_CASE("gemm kernels: every portable instruction and layout compiles without spills") {
  for (const int capability : {80, 90, 100})
    check_kernels(for_capability(portable_cases(), capability), source_of, 29, {capability});
}

TEST_CASE("gemm kernels: warpgroups' compile without spills") {
  CHECK(for_capability(warpgroup_cases(), 80).empty());
  CHECK(for_capability(warpgroup_cases(), 100).empty());
  check_kernels(warpgroup_cases(), source_of, 5, {90});
}

TEST_CASE("gemm kernels: warpgroups' compile without spills where sums are stored as they are") {
  std::vector<GemmCase> cases = warpgroup_cases();
  for (GemmCase& c : cases) c.description.epilogue = GemmEpilogue(epilogue::accumulator());
  check_kernels(cases, source_of, 7, {90});
}

TEST_CASE("gemm kernels: those that add up slices compile without spills") {
  std::vector<GemmDescription> splits;
  for (const auto& cases : {example_cases(), portable_cases(), warpgroup_cases()})
    for (const GemmCase& c : cases)
      if (c.description.split_k == SplitK::parallel) splits.push_back(c.description);
  REQUIRE(splits.size() > 2);
  check_kernels(splits, join_source_of, 1, {90});
  std::erase_if(splits, [](const GemmDescription& d) { return !runs_on(d.tile.math, 80); });
  check_kernels(splits, join_source_of, 1, {80});
}

TEST_CASE("gemm kernels: those that store blocks compile without spills") {
  check_kernels(all_gemm_blocks_kernels(), gemm_blocks_source, 7, {90});
}

TEST_CASE("gemm kernels: blocks are stored by kernels that store boxes of 16 bits, and no others") {
  for (const GemmCase& c : warpgroup_cases()) {
    const GemmDescription& d = c.description;
    const bool can = stores_boxes(d) && size_of(d.d.element) == 2 && !d.transposed() &&
                     d.split_k == SplitK::none && d.swizzle != Swizzle::stream_k;
    if (!can)
      CHECK_THROWS_WITH_AS(to_blocks_source(d, 32), doctest::Contains("blocks of 32"), Error);
  }
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

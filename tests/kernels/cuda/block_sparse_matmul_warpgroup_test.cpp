#include <bs/kernels/cuda/block_sparse_matmul_warpgroup.h>
#include <bs/tests/kernels/cuda/epilogue_of_all_kinds.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

#include <vector>

using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of wgmma compile and keep to registers") {
  bs::test::check_kernels(all_warpgroup_kernels(),
                          [](const WarpgroupKernel& k) { return warpgroup_source(k); }, 13, {90});
}

namespace {

jit::Source source_of_all_kinds(WarpgroupKernel k) {
  k.staged = 2;
  const bs::GemmEpilogue e = bs::test::epilogue_of_all_kinds(bs::element_of(k.dtype));
  return warpgroup_source(k, &e);
}

jit::Source reducing_source(const WarpgroupKernel& k) {
  const bs::GemmEpilogue e = bs::test::epilogue_that_reduces(bs::element_of(k.dtype));
  return warpgroup_source(k, &e);
}

}  // namespace

TEST_CASE("block-sparse products: the kernels of wgmma compile with an epilogue of all kinds") {
  bs::test::check_kernels(all_warpgroup_kernels(true), source_of_all_kinds, 67, {90});
  const std::vector<WarpgroupKernel> widest{{.sampled = true,  // it once did not keep to registers
                                             .dtype = bs::bf16,
                                             .block = 32,
                                             .a_along_k = true,
                                             .b_along_k = true,
                                             .cols = 256,
                                             .gathered = true}};
  bs::test::check_kernels(widest, source_of_all_kinds, 1, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with reductions") {
  bs::test::check_kernels(all_warpgroup_kernels(true), reducing_source, 47, {90});
  // Of each kind that once did not keep to registers.
  const std::vector<WarpgroupKernel> widest{
      {.sampled = false, .dtype = bs::bf16, .block = 16, .a_along_k = true, .cols = 256},
      {.sampled = false,
       .dtype = bs::bf16,
       .block = 32,
       .a_along_k = true,
       .c_by_columns = true,
       .cols = 256,
       .gathered = true},
      {.sampled = false,
       .dtype = bs::bf16,
       .block = 32,
       .a_along_k = true,
       .b_along_k = true,
       .cols = 256,
       .gathered = true},
      {.sampled = true,
       .dtype = bs::bf16,
       .block = 128,
       .a_along_k = true,
       .b_along_k = true,
       .cols = 256}};
  bs::test::check_kernels(widest, reducing_source, 1, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with bias and gelu") {
  bs::test::check_kernels(all_warpgroup_kernels(true),
                          [](const WarpgroupKernel& k) {
                            const bs::GemmEpilogue e =
                                bs::test::bias_and_gelu(bs::element_of(k.dtype));
                            return warpgroup_source(k, &e);
                          },
                          59, {90});
}

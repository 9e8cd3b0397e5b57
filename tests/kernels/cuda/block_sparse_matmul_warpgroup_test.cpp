#include <bs/kernels/cuda/block_sparse_matmul_warpgroup.h>
#include <bs/tests/kernels/cuda/epilogue_of_all_kinds.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of wgmma compile and keep to registers") {
  bs::test::check_kernels(all_warpgroup_kernels(),
                          [](const WarpgroupKernel& k) { return warpgroup_source(k); }, 13, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with an epilogue of all kinds") {
  bs::test::check_kernels(all_warpgroup_kernels(true),
                          [](WarpgroupKernel k) {
                            k.staged = 2;
                            const bs::GemmEpilogue e =
                                bs::test::epilogue_of_all_kinds(bs::element_of(k.dtype));
                            return warpgroup_source(k, &e);
                          },
                          53, {90});
}

TEST_CASE("block-sparse products: the kernels of wgmma compile with reductions") {
  bs::test::check_kernels(
      all_warpgroup_kernels(true),
      [](const WarpgroupKernel& k) {
        const bs::GemmEpilogue e = bs::test::epilogue_that_reduces(bs::element_of(k.dtype));
        return warpgroup_source(k, &e);
      },
      31, {90}, 32);
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

#include <bs/kernels/cuda/block_sparse_matmul_warpgroup.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of wgmma compile and keep to registers") {
  bs::test::check_kernels(all_warpgroup_kernels(), warpgroup_source, 13, {90});
}

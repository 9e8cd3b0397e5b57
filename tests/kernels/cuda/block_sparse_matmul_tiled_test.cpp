#include <bs/kernels/cuda/block_sparse_matmul_tiled.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("block-sparse products: the kernels of mma.sync compile and keep to registers") {
  bs::test::check_kernels(all_tiled_kernels(), tiled_source, 7);
}

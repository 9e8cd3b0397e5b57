#include <bs/kernels/cuda/block_sparse_matmul_tf32.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs::cuda;

TEST_CASE("block-sparse products: the f32 kernels of wgmma compile and keep to registers") {
  bs::test::check_kernels(all_tf32_kernels(), [](const Tf32Kernel& k) { return tf32_source(k); }, 7,
                          {90});
}

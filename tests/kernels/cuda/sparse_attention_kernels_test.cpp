#include <bs/kernels/cuda/attention/sparse_attention_kernels.h>
#include <bs/tests/support/kernel_sweep.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

TEST_CASE("sparse_attention: the kernels compile and keep to registers") {
  test::check_kernels(all_attention_kernels(), attention_source, 17);
  test::check_kernels(std::vector<DType>{f16, bf16, f32, f64}, attention_numbers_source, 3);
}

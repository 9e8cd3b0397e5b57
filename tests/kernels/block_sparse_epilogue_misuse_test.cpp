#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/gemm_epilogue.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/sparse_case.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

TEST_CASE("epilogues of dsd refuse what does not fit") {
  using namespace bs::epilogue;
  const Device device = test_device();
  const LayoutPtr layout = Mask(1, 2, 3, 16, 1).layout();
  const SparseTensor s{layout, Tensor::empty({6, 16, 16}, f16, device)};
  const Tensor b = Tensor::empty({2, 48, 10}, f16, device);
  const Value t = accumulator() + row("bias", Element::f16);
  const GemmEpilogue e(t);
  const auto run = [&](ProductOptions options) { return dsd(s, b, {}, options); };
  CHECK_THROWS_WITH_AS(run({.epilogue = e}), "dsd: the epilogue's tensor 'bias' is missing", Error);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = e, .tensors = {{"bias", Tensor::empty({32}, f16, device)}}}),
      "dsd: 'bias' has shape [32]; expected [2, 10], or what broadcasts to it", Error);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = e, .tensors = {{"bias", Tensor::empty({3, 10}, f16, device)}}}),
      "dsd: 'bias' has shape [3, 10]; expected [2, 10], or what broadcasts to it", Error);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = e, .tensors = {{"bias", Tensor::empty({10}, f32, device)}}}),
      "dsd: 'bias' is a tensor of f32; the epilogue says f16", Error);
  const Tensor bias = Tensor::empty({10}, f16, device);
  CHECK_THROWS_WITH_AS(run({.epilogue = e, .tensors = {{"bias", bias}, {"other", bias}}}),
                       "dsd: the epilogue has no tensor 'other'; it is\nv0 = accumulator\n"
                       "v1 = row bias f16\nv2 = v0 + v1\nstore d f16 = v2\n",
                       Error);
  CHECK_THROWS_WITH_AS(run({.epilogue = e, .tensors = {{"bias", bias}}, .scalars = {{"x", 1}}}),
                       "dsd: 1 scalars for an epilogue that has 0", Error);
  CHECK_THROWS_WITH_AS(run({.tensors = {{"bias", bias}}}),
                       "dsd: tensors or scalars, but no epilogue that names them", Error);
  const GemmEpilogue storing = GemmEpilogue(t).store("t", t, Element::f16);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = storing,
           .tensors = {{"bias", bias}, {"t", Tensor::empty({32, 10}, f16, device)}}}),
      "dsd: 't' is stored, and has shape [32, 10], strides [10, 1]; expected [2, 32, 10], "
      "contiguous",
      Error);
  const GemmEpilogue summing = GemmEpilogue(t).row_sum("rows", t);
  CHECK_THROWS_WITH_AS(run({.epilogue = summing, .tensors = {{"bias", bias}}}),
                       "dsd: the epilogue's tensor 'rows' is missing", Error);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = summing,
           .tensors = {{"bias", bias}, {"rows", Tensor::empty({2, 32}, f16, device)}}}),
      "dsd: 'rows' is a tensor of f16; the epilogue says f32", Error);
  CHECK_THROWS_WITH_AS(
      run({.epilogue = summing,
           .tensors = {{"bias", bias}, {"rows", Tensor::empty({2, 10}, f32, device)}}}),
      "dsd: 'rows' is reduced, and has shape [2, 10], strides [10, 1]; expected [2, 32], "
      "contiguous",
      Error);
  if (device.is_cuda())
    CHECK_THROWS_WITH_AS(run({.epilogue = e, .tensors = {{"bias", Tensor::empty({10}, f16)}}}),
                         "dsd: tensors on cpu and cuda:0", Error);
}

TEST_CASE("epilogues of sdd refuse what does not fit") {
  using namespace bs::epilogue;
  const Device device = test_device();
  const GemmEpilogue e(accumulator() + row("bias", Element::f16));
  const LayoutPtr heads = Mask(2, 2, 2, 16, 1).layout();
  const Tensor x = Tensor::empty({2, 32, 8}, f16, device);
  CHECK_THROWS_WITH_AS(
      sdd(x, x, heads, {.b = true},
          {.epilogue = e, .tensors = {{"bias", Tensor::empty({3, 32}, f16, device)}}}),
      "sdd: 'bias' has shape [3, 32]; expected [2, 32], or what broadcasts to it", Error);
  CHECK_THROWS_WITH_AS(
      sdd(x, x, heads, {.b = true},
          {.epilogue = GemmEpilogue(accumulator()).column_max("most", accumulator()),
           .tensors = {{"most", Tensor::empty({32}, f32, device)}}}),
      "sdd: 'most' is reduced, and has shape [32], strides [1]; expected [2, 32], contiguous",
      Error);
}

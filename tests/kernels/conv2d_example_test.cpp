// The example of convolutions in docs/gemm_operation.md.
#include <bs/kernels/conv2d_operation.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("conv2d_operation example") {
  using namespace bs::epilogue;
  const Device device = test::test_device();
  const Tensor x = channels_last(full({1, 8, 6, 6}, 1, f16, device));
  const Tensor weight = channels_last(full({16, 8, 3, 3}, 0.25, f16, device));
  const Tensor y = channels_last(zeros({1, 16, 3, 3}, f16, device));
  const Tensor bias = full({16}, 2, f32, device);
  const MathInstruction math{{16, 8, 16},  Element::f16,       Element::f16,
                             Element::f32, OpClass::tensor_op, MathOperation::multiply_add};
  const Conv2dOperand f16_by_8{Element::f16, 8};
  const Value t = accumulator() + row("bias", Element::f32);
  const Conv2dOperation conv({.kind = Conv2dKind::fprop,
                              .iterator = Conv2dIterator::optimized,
                              .tile = {{128, 64, 32}, 3, {2, 2, 1}, math, {1, 1}},
                              .a = f16_by_8,
                              .b = f16_by_8,
                              .d = f16_by_8,
                              .epilogue = GemmEpilogue(silu(t)),
                              .split_k = SplitK::parallel});
  conv.run({.a = x,
            .b = weight,
            .d = y,
            .options = {.stride = {2, 2}, .padding = {1, 1, 1, 1}},
            .tensors = {{"bias", bias}},
            .slices = 2});
  CHECK(test::Reference::of(y).at({0, 15, 1, 1}) == 8 * 9 * 0.25 + 2);
}

// The examples of docs/gemm_operation.md.
#include <bs/kernels/fill.h>
#include <bs/kernels/gemm_operation.h>
#include <bs/kernels/random.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

using namespace bs;

namespace {

/// f16 operands, f32 sums, on any GPU since Ampere.
GemmDescription describe_f16() {
  const MathInstruction math{{16, 8, 16},  Element::f16,       Element::f16,
                             Element::f32, OpClass::tensor_op, MathOperation::multiply_add};
  return {.tile = {{128, 128, 32}, 3, {2, 2, 1}, math, {1, 1}},
          .a = {Element::f16, MatrixLayout::row_major, 8},
          .b = {Element::f16, MatrixLayout::column_major, 8},
          .d = {Element::f16, MatrixLayout::row_major, 8},
          .epilogue = GemmEpilogue::linear_combination(Element::f16)};
}

}  // namespace

TEST_CASE("gemm example: a product") {
  const Device device = test::test_device();
  const Tensor a = full({64, 32}, 1, f16, device), w = full({48, 32}, 2, f16, device);
  const Tensor c = full({64, 48}, 3, f16, device), d = zeros({64, 48}, f16, device);
  const GemmOperation gemm(describe_f16());
  gemm.run({.a = a,
            .b = w.transpose(0, 1),
            .d = d,
            .tensors = {{"c", c}},
            .scalars = {{"alpha", 0.5}, {"beta", 1.0}}});
  CHECK(test::Reference::of(d).at({63, 47}) == 0.5 * 32 * 2 + 3);
}

TEST_CASE("gemm example: an epilogue") {
  using namespace bs::epilogue;
  const Device device = test::test_device();
  const Tensor a = full({64, 32}, 1, f16, device), w = full({48, 32}, 2, f16, device);
  const Tensor bias = full({48}, 5, f32, device), d = zeros({64, 48}, f16, device);
  const Tensor before = zeros({64, 48}, f16, device), sums = zeros({64}, f32, device);
  GemmDescription description = describe_f16();
  const Value t = accumulator() + row("bias", Element::f32);
  const Value y = silu(t);
  description.epilogue = GemmEpilogue(y).store("before", t, Element::f16).row_sum("sums", y);
  description.split_k = SplitK::parallel;
  const GemmOperation gemm(description);
  gemm.run({.a = a,
            .b = w.transpose(0, 1),
            .d = d,
            .tensors = {{"bias", bias}, {"before", before}, {"sums", sums}},
            .slices = 2});
  CHECK(test::Reference::of(before).at({0, 0}) == 69);
  CHECK(test::Reference::of(sums).at({63}) == 48 * 69);
}

TEST_CASE("gemm example: a group") {
  const Device device = test::test_device();
  GemmDescription description = describe_f16();
  description.epilogue = GemmEpilogue();
  description.mode = GemmMode::grouped;
  const GemmOperation gemm(description);
  std::vector<GemmArguments> experts;
  for (const int64_t tokens : {16, 0, 200})
    experts.push_back({.a = full({tokens, 32}, 1, f16, device),
                       .b = full({48, 32}, 2, f16, device).transpose(0, 1),
                       .d = zeros({tokens, 48}, f16, device),
                       .scalars = {{"alpha", 1.0}}});
  gemm.run(experts);
  CHECK(test::Reference::of(experts[2].d).at({199, 47}) == 64);
}

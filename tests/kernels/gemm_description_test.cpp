#include <bs/tests/kernels/gemm_cases.h>
#include <bs/tests/support/decimal_comma.h>
#include <bs/tests/support/devices.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

constexpr Element f16e = Element::f16, f32e = Element::f32;

void refused(const GemmDescription& d, const char* text) {
  CHECK_THROWS_WITH_AS(GemmOperation{d}, text, Error);
}

}  // namespace

TEST_CASE("gemm: descriptions that no GPU can run say why") {
  MathInstruction odd = math(f16e, f32e);
  odd.shape = {16, 8, 8};
  CHECK_THROWS_AS(check(odd), Error);
  try {
    check(odd);
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(
        text.starts_with("math instruction: no unit does 16x8x8 f16 f16 f32 tensor_op "
                         "multiply_add; tensor_op has\n  8x8x4 f64"));
    CHECK(text.find("\n  16x8x16 bf16 bf16 f32 tensor_op multiply_add") != std::string::npos);
  }
  GemmDescription d = small_gemm();
  d.a.element = Element::bf16;
  refused(d, "gemm: a is bf16, but the instruction multiplies f16");
  d = small_gemm();
  d.b.alignment = 16;
  refused(d, "gemm: b is aligned to 16 elements of f16; expected 1, 2, 4, ... up to 16 bytes");
  for (const int alignment : {0, -1, 3, 1 << 30}) {
    d = small_gemm();
    d.d.alignment = alignment;
    CHECK_THROWS_WITH_AS(GemmOperation{d}, doctest::Contains("gemm: d is aligned to "), Error);
  }
  d = small_gemm();
  d.tile.threadblock[0] = 48;
  refused(d, "gemm: a tile of 48 x 64 does not divide into 2 x 2 warps of multiples of 16");
  d = small_gemm();
  d.tile.threadblock[2] = 24;
  refused(d, "gemm: a depth of 24 does not divide into 1 warps of multiples of 16");
  d = small_gemm();
  d.tile.stages = 1;
  refused(d, "gemm: 1 stages; expected 2 to 16");
  d = small_gemm();
  d.tile.threadblock = {256, 256, 64};
  d.tile.stages = 4;
  refused(d,
          "gemm: 4 stages of a tile of 256 x 256 x 64 take 294976 bytes of shared memory, more "
          "than 232448");
  d = small_gemm();
  d.mode = GemmMode::grouped;
  d.split_k = SplitK::serial;
  refused(d, "gemm: grouped products are not split along the depth");
  d = small_gemm();
  d.tile.threadblock[1] = 1 << 28;
  refused(d,
          "gemm: no kernel has a tile of 64x268435456x32 stages 3 warps 2x2x1 cluster 1x1 16x8x16 "
          "f16 f16 f32 tensor_op multiply_add");
  d.tile.threadblock[1] = 64;
  d.tile.warps[0] = 0;
  CHECK_THROWS_AS(reduction_chunk(d), Error);
  CHECK_THROWS_AS(to_source(d), Error);
}

TEST_CASE("gemm: descriptions for warpgroups that no GPU can run say why") {
  GemmDescription d = describe(math(Element::i8, Element::i32, OpClass::warpgroup), {128, 64, 128},
                               4, {8, 1, 1}, "rrr", Element::i8);
  refused(d,
          "gemm: warpgroups multiply i8 only where the depth lies contiguous in both operands: a "
          "row_major, b column_major; a is row_major, b is row_major");
  const GemmDescription wide =
      describe(math(f16e, f32e, OpClass::warpgroup), {128, 64, 64}, 4, {8, 1, 1}, "rcr", f16e);
  d = wide;
  d.tile.cluster_k = 9;
  refused(
      d,
      "gemm: a cluster of 1 x 1 with 9 CTAs along the depth; expected 1 to 8, and more than one "
      "only with 1 x 1");
  d.tile.cluster_k = 2;
  d.tile.cluster = {1, 2};
  d.tile.math.shape[1] = d.tile.threadblock[1] = 128;
  refused(
      d,
      "gemm: a cluster of 1 x 2 with 2 CTAs along the depth; expected 1 to 8, and more than one "
      "only with 1 x 1");
  d = wide;
  d.tile.cluster_k = 2;
  d.split_k = SplitK::serial;
  refused(d, "gemm: clusters are for gemm and batched with the depth in one piece");
  d = small_gemm();
  d.tile.cluster_k = 2;
  refused(d, "gemm: clusters are for warpgroup instructions");
}

TEST_CASE("gemm: arguments that do not fit say why") {
  const GemmDescription d = small_gemm();
  const GemmOperation operation(d);
  const Linear x(d, {}, 64, 64, 64, 1);
  const auto refused = [&](GemmArguments arguments, const char* text) {
    CHECK_THROWS_WITH_AS(operation.run(arguments), text, Error);
  };
  GemmArguments arguments = x.arguments(1, 1);
  arguments.a = Tensor();
  refused(arguments, "gemm: a is missing");
  arguments = x.arguments(1, 1);
  arguments.a = Tensor::empty({64, 64}, f32, test_device());
  refused(arguments, "gemm: a is a tensor of f32; f16 lies in f16");
  arguments = x.arguments(1, 1);
  arguments.a = Tensor::empty({64, 32}, f16, test_device());
  refused(arguments, "gemm: inner dimensions differ: a [64, 32], b [64, 64]");
  arguments.a = Tensor::empty({64, 64}, f16, test_device()).transpose(0, 1);
  refused(arguments, "gemm: a is not row_major: shape [1, 64, 64], strides [1, 1, 64]");
  arguments.a = Tensor::empty({64, 68}, f16, test_device()).slice(1, 0, 64);
  refused(arguments,
          "gemm: the leading dimension of a is 68; the description says a multiple of 8");
  arguments.a = Tensor::empty({64, 72}, f16, test_device()).slice(1, 4, 68);
  refused(arguments, "gemm: the address of a is not a multiple of 16 bytes");
  arguments = x.arguments(1, 1);
  arguments.tensors.clear();
  refused(arguments, "gemm: the epilogue's tensor 'c' is missing");
  arguments = x.arguments(1, 1);
  arguments.scalars.erase("beta");
  refused(arguments, "gemm: the epilogue's scalar 'beta' is missing");
  arguments = x.arguments(1, 1);
  arguments.tensors["bias"] = x.c.tensor;
  CHECK_THROWS_AS(operation.run(arguments), Error);
  arguments = x.arguments(1, 1, 2);
  refused(arguments, "gemm: 2 slices of the depth; the description's split_k is none");
  arguments = x.arguments(1, 1);
  arguments.tensors["c"] = Tensor::empty({64, 32}, f16, test_device());
  refused(arguments, "gemm: c has shape [64, 32]; expected [64, 64]");
  const std::vector<GemmArguments> two(2, x.arguments(1, 1));
  CHECK_THROWS_WITH_AS(operation.run(two), "gemm: 2 products; gemm takes one", Error);
}

TEST_CASE("gemm: wgmma is for compute capability 9.0 alone, all else from its first one on") {
  for (const MathInstruction& one : math_instructions()) {
    CAPTURE(to_string(one));
    CHECK(runs_on(one, minimum_capability(one)));
    CHECK(!runs_on(one, minimum_capability(one) - 1));
    for (const int capability : {100, 103, 120})
      CHECK(runs_on(one, capability) == (one.op_class != OpClass::warpgroup));
  }
}

TEST_CASE("gemm: results leave in boxes where they are alone, aligned, and have room") {
  MathInstruction m = math(f32e, f32e, OpClass::warpgroup);
  m.shape[1] = 192;
  const auto boxes = [&](int stages, Element d, int alignment) {
    GemmDescription x = describe(m, {128, 192, 32}, stages, {8, 1, 1}, "rcr", d);
    x.d.alignment = alignment;
    check(x);
    return stores_boxes(x);
  };
  CHECK(boxes(4, f32e, 4));
  CHECK(boxes(4, f16e, 8));
  CHECK(!boxes(4, f32e, 2));
  CHECK(!boxes(4, f16e, 4));
  CHECK(!boxes(4, Element::i8, 16));
  CHECK(!boxes(5, f32e, 4));  // the stages leave less than two boxes for each warp
  GemmDescription x = describe(m, {128, 192, 32}, 4, {8, 1, 1}, "rcr", f32e);
  x.d.alignment = 4;
  const epilogue::Value sum = epilogue::accumulator();
  x.epilogue = GemmEpilogue(sum).store("t", sum, f32e);
  CHECK(!stores_boxes(x));
  x.epilogue = GemmEpilogue(sum).row_sum("s", sum);
  CHECK(!stores_boxes(x));
  x.epilogue = GemmEpilogue(sum);
  CHECK(stores_boxes(x));
  x.tile.cluster_k = 2;
  CHECK(!stores_boxes(x));
}

TEST_CASE("gemm: 8-bit floats and tf32 round to nearest") {
  for (const Element e : {Element::e4m3, Element::e5m2})
    for (int bits = 0; bits < 256; ++bits) {
      const float value = decode_fp8(static_cast<uint8_t>(bits), e);
      if (!std::isfinite(value)) continue;
      CHECK(encode_fp8(value, e) == bits);
    }
  CHECK(decode_fp8(0x7E, Element::e4m3) == 448);
  CHECK(decode_fp8(0x01, Element::e4m3) == 0x1p-9F);
  CHECK(decode_fp8(0x7B, Element::e5m2) == 57344);
  CHECK(encode_fp8(1e9F, Element::e4m3) == 0x7E);
  CHECK(decode_fp8(encode_fp8(1.0625F, Element::e4m3), Element::e4m3) == 1);      // a tie, to even
  CHECK(decode_fp8(encode_fp8(1.1875F, Element::e4m3), Element::e4m3) == 1.25F);  // and up
  CHECK(round_to_tf32(1 + 0x1p-11F) == 1 + 0x1p-10F);
  CHECK(round_to_tf32(1 + 0x1.8p-12F) == 1);
}

TEST_CASE("gemm: the source is the same where the decimal point is a comma") {
  const auto sources = [] {
    std::vector<std::string> all;
    for (GemmCase c : example_cases()) {
      c.description.epilogue = GemmEpilogue(epilogue::clamp(epilogue::accumulator(), -1.5, 1e-3));
      all.push_back(GemmOperation(c.description).to_source());
    }
    return all;
  };
  const std::vector<std::string> expected = sources();
  const DecimalComma comma;
  CHECK(sources() == expected);
}

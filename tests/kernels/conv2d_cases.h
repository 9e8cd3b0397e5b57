#pragma once
/** @file Descriptions of convolutions by few words, and those of PyCUTLASS' examples. */
#include <bs/kernels/conv2d_operation.h>
#include <bs/tests/kernels/gemm_cases.h>

#include <string>
#include <vector>

namespace bs::test {

/** @brief A description whose operands and D have `alignment` elements of the instruction's type:
 *  D = alpha sum + beta C. */
inline Conv2dDescription describe(Conv2dKind kind, Conv2dIterator iterator,
                                  const MathInstruction& instruction,
                                  std::array<int, 3> threadblock, std::array<int, 3> warps,
                                  int alignment, Element d) {
  const Conv2dOperand operand{instruction.a, alignment};
  const int stages = instruction.op_class == OpClass::warpgroup ? 4 : 3;
  return {.kind = kind,
          .iterator = iterator,
          .tile = {threadblock, stages, warps, instruction, {1, 1}},
          .a = operand,
          .b = operand,
          .d = {d, 1},
          .epilogue = GemmEpilogue::linear_combination(d)};
}

/** @brief One run: x [N, C, H, W], filters of K x R x S, and what the scalars are. */
struct Conv2dCase {
  std::string name;
  Conv2dDescription description;
  Shape x;
  int64_t k = 1;
  Extent2 filter = {1, 1};
  Conv2dOptions options = {};
  int slices = 1;
  double alpha = 1, beta = 0.5;
};

namespace detail {
inline Conv2dDescription split(Conv2dDescription d, SplitK how) {
  d.split_k = how;
  return d;
}
inline Padding2 pad(int64_t n) { return {n, n, n, n}; }
inline const Conv2dOptions strided{.stride = {2, 1}, .padding = pad(1)};

inline std::vector<Conv2dCase> conv2d_examples_f32() {
  using enum Conv2dKind;
  using enum Conv2dIterator;
  constexpr Element f32e = Element::f32;
  const MathInstruction tf32 = math(f32e, f32e), simt = math(f32e, f32e, OpClass::simt);
  const std::array<int, 3> t128{128, 128, 16}, plain{128, 128, 8};
  return {
      {"fprop tf32",
       describe(fprop, analytic, tf32, t128, {2, 2, 1}, 4, f32e),
       {1, 8, 13, 17},
       24,
       {3, 3},
       {.stride = {2, 2}}},
      {"fprop tf32 serial",
       split(describe(fprop, optimized, tf32, t128, {2, 2, 1}, 4, f32e), SplitK::serial),
       {1, 12, 4, 4},
       8,
       {3, 3},
       {.stride = {3, 3}},
       2},
      {"fprop simt parallel",
       split(describe(fprop, analytic, simt, plain, {4, 2, 1}, 4, f32e), SplitK::parallel),
       {1, 32, 71, 80},
       64,
       {5, 5},
       {.stride = {2, 2}, .padding = pad(2)},
       3},
      {"wgrad of one channel",
       describe(wgrad, analytic, tf32, t128, {2, 2, 1}, 1, f32e),
       {1, 1, 8, 8},
       1,
       {3, 3},
       {.padding = pad(1)}},
      {"wgrad simt serial",
       split(describe(wgrad, optimized, simt, plain, {4, 2, 1}, 4, f32e), SplitK::serial),
       {1, 256, 27, 27},
       512,
       {3, 3},
       strided,
       2},
      {"dgrad simt serial",
       split(describe(dgrad, analytic, simt, plain, {4, 2, 1}, 4, f32e), SplitK::serial),
       {1, 256, 27, 27},
       512,
       {3, 3},
       strided,
       2},
  };
}

inline std::vector<Conv2dCase> conv2d_examples_f16() {
  using enum Conv2dKind;
  using enum Conv2dIterator;
  constexpr Element f16e = Element::f16, f32e = Element::f32;
  const MathInstruction half = math(f16e, f32e);
  const std::array<int, 3> deep{128, 128, 32};
  Conv2dDescription mixed = describe(wgrad, optimized, half, {64, 64, 32}, {2, 2, 1}, 1, f32e);
  Conv2dDescription three = describe(fprop, few_channels, half, {128, 64, 32}, {2, 2, 1}, 1, f16e);
  return {
      {"fprop f16",
       describe(fprop, optimized, half, deep, {2, 2, 1}, 8, f16e),
       {1, 256, 27, 27},
       512,
       {3, 3},
       strided},
      {"fprop few_channels",
       describe(fprop, few_channels, half, {128, 64, 64}, {2, 2, 1}, 2, f16e),
       {1, 2, 16, 16},
       16,
       {3, 3},
       {.stride = {2, 2}, .padding = pad(1)}},
      {"fprop fixed_channels",
       describe(fprop, fixed_channels, half, {128, 64, 64}, {2, 2, 1}, 8, f16e),
       {1, 8, 8, 8},
       16,
       {3, 3},
       {.stride = {2, 2}, .padding = pad(1)}},
      {"dgrad strided",
       describe(dgrad, optimized, half, {128, 64, 32}, {2, 2, 1}, 4, f16e),
       {1, 12, 56, 56},
       8,
       {1, 1},
       {.stride = {2, 2}}},
      {"wgrad f16 to f32", mixed, {2, 5, 9, 7}, 3, {3, 2}, {.dilation = {2, 1}}},
      {"fprop of three channels",
       three,
       {2, 3, 17, 15},
       8,
       {7, 7},
       {.stride = {2, 2}, .padding = pad(3)}},
  };
}
}  // namespace detail

/** @brief PyCUTLASS' example commands of convolutions with a linear epilogue. */
inline std::vector<Conv2dCase> conv2d_examples() {
  std::vector<Conv2dCase> all = detail::conv2d_examples_f32();
  for (const Conv2dCase& one : detail::conv2d_examples_f16()) all.push_back(one);
  return all;
}

/** @brief The sizes of one problem. */
struct Conv2dProblemCase {
  Shape x;
  int64_t k = 1;
  Extent2 filter = {1, 1};
  Conv2dOptions options = {};
};

/** @brief PyCUTLASS' default problems of convolutions, and one that is dilated. */
inline std::vector<Conv2dProblemCase> conv2d_problems() {
  const auto walk = [](int64_t h, int64_t w, int64_t top, int64_t left) {
    return Conv2dOptions{.stride = {h, w}, .padding = {top, top, left, left}};
  };
  const Conv2dOptions unit = walk(1, 1, 1, 1), two = walk(2, 2, 1, 1);
  return {
      {{1, 64, 1, 1}, 8, {1, 1}, unit},
      {{1, 64, 1, 8}, 8, {1, 3}, unit},
      {{1, 64, 7, 8}, 8, {3, 3}, unit},
      {{1, 64, 7, 9}, 8, {4, 4}, unit},
      {{2, 64, 7, 9}, 8, {5, 5}, unit},
      {{3, 64, 7, 9}, 8, {6, 5}, unit},
      {{3, 64, 7, 9}, 8, {6, 6}, unit},
      {{3, 64, 7, 9}, 8, {7, 7}, unit},
      {{1, 64, 11, 7}, 8, {1, 1}, walk(2, 2, 0, 0)},
      {{1, 64, 11, 7}, 8, {3, 3}, two},
      {{1, 64, 13, 11}, 8, {1, 1}, two},
      {{1, 64, 17, 19}, 16, {2, 2}, two},
      {{1, 64, 23, 5}, 16, {3, 3}, two},
      {{1, 128, 23, 21}, 224, {3, 3}, unit},
      {{1, 128, 16, 24}, 96, {3, 3}, unit},
      {{1, 256, 55, 51}, 512, {1, 1}, walk(2, 2, 0, 0)},
      {{1, 256, 27, 23}, 512, {3, 3}, walk(3, 3, 0, 0)},
      {{1, 256, 27, 31}, 512, {3, 3}, walk(3, 4, 5, 7)},
      {{1, 256, 27, 35}, 512, {7, 5}, walk(3, 5, 11, 7)},
      {{1, 256, 27, 27}, 512, {3, 3}, walk(1, 2, 1, 1)},
      {{1, 256, 27, 27}, 512, {3, 3}, walk(2, 1, 1, 1)},
      {{3, 256, 28, 28}, 256, {2, 2}, walk(2, 2, 0, 0)},
      // Of these two the size of the result is given: 3 x 3 and 1 x 1.
      {{4, 128, 4, 5}, 256, {3, 6}, {.padding = {0, 1, 0, 3}}},
      {{4, 256, 2, 3}, 328, {3, 5}, {.padding = {1, 0, 1, 1}}},
      {{2, 64, 8, 4}, 64, {3, 3}, {.padding = {2, 2, 2, 2}, .dilation = {2, 2}}},
  };
}

}  // namespace bs::test

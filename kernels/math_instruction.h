#pragma once
/** @file The instruction a matrix product is made of. */
#include <bs/kernels/gemm_element.h>

#include <array>
#include <span>

namespace bs {

/** @brief Which units multiply. */
enum class OpClass : uint8_t {
  simt,       ///< one multiply-add a thread: any GPU, f32 and f64 as they are
  tensor_op,  ///< one product a warp (mma.sync): sm_80 and later
  warpgroup,  ///< one product of four warps, operands in shared memory (wgmma): sm_90a
};

/** @brief What is done to operands on the way. */
enum class MathOperation : uint8_t {
  multiply_add,
  multiply_add_saturate,  ///< i32 sums stop at the ends of their range
  fast_f16,               ///< f32 operands rounded to f16
  fast_bf16,              ///< f32 operands rounded to bf16
  fast_f32,               ///< f32 operands split into two tf32 each, three products: f32's accuracy
};

/** @brief Shape, elements and kind of one multiplying instruction.
 *
 *  Only what a unit can do is valid; `math_instructions()` is the whole list. f32 operands of the
 *  tensor cores under `multiply_add` are multiplied as tf32. */
struct MathInstruction {
  std::array<int, 3> shape = {16, 8, 16};  ///< rows, columns and depth of one instruction
  Element a = Element::f16;
  Element b = Element::f16;
  Element accumulator = Element::f32;
  OpClass op_class = OpClass::tensor_op;
  MathOperation operation = MathOperation::multiply_add;

  bool operator==(const MathInstruction&) const = default;
};

/** @brief Every valid instruction. */
std::span<const MathInstruction> math_instructions();
/** @brief Throws an Error that lists the valid instructions of the same class unless this is one.
 */
void check(const MathInstruction& instruction);
/** @brief The first GPU that has it: 10 * major + minor; 90 stands for sm_90a. */
int minimum_capability(const MathInstruction& instruction);
/** @brief Whether a GPU of this compute capability has it: from the first on all have, but for
 *  wgmma, which 9.0 alone has. */
bool runs_on(const MathInstruction& instruction, int capability);

std::string to_string(OpClass op_class);
std::string to_string(MathOperation operation);
/** @brief "16x8x16 f16 f16 f32 tensor_op multiply_add" */
std::string to_string(const MathInstruction& instruction);

}  // namespace bs

#pragma once
/** @file What an instruction rounds, of the products that the CPU computes in its place. */
#include <bs/kernels/math_instruction.h>
#include <bs/lib/half.h>

#include <algorithm>
#include <limits>

namespace bs::cpu {

/** @brief What the multiplier gets of an operand's element. */
inline double multiplied(const MathInstruction& math, double x) {
  if (math.a != Element::f32 && math.a != Element::tf32) return x;
  if (math.op_class == OpClass::simt || math.operation == MathOperation::fast_f32) return x;
  const auto single = static_cast<float>(x);
  if (math.operation == MathOperation::fast_f16) return static_cast<double>(half(single));
  if (math.operation == MathOperation::fast_bf16) return static_cast<double>(bfloat16(single));
  return round_to_tf32(single);
}

/** @brief A sum as the accumulator holds it. */
inline double accumulated(const MathInstruction& math, double sum) {
  switch (math.accumulator) {
    case Element::f32:
      return static_cast<float>(sum);
    case Element::f16:
      return static_cast<double>(half(static_cast<float>(sum)));
    case Element::i32:
      if (math.operation == MathOperation::multiply_add_saturate)
        return std::clamp<double>(sum, std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max());
      return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
    default:
      return sum;
  }
}

}  // namespace bs::cpu

#include <bs/kernels/math_instruction.h>

#include <algorithm>
#include <vector>

namespace bs {

namespace {

using enum Element;
using enum MathOperation;
using enum OpClass;

void add_warp_instructions(std::vector<MathInstruction>& table) {
  table.push_back({{1, 1, 1}, f32, f32, f32, simt, multiply_add});
  table.push_back({{1, 1, 1}, f64, f64, f64, simt, multiply_add});
  table.push_back({{8, 8, 4}, f64, f64, f64, tensor_op, multiply_add});
  table.push_back({{16, 8, 16}, f64, f64, f64, tensor_op, multiply_add});
  for (const MathOperation operation : {multiply_add, fast_f16, fast_bf16, fast_f32})
    table.push_back({{16, 8, 8}, f32, f32, f32, tensor_op, operation});
  table.push_back({{16, 8, 8}, tf32, tf32, f32, tensor_op, multiply_add});
  table.push_back({{16, 8, 16}, f16, f16, f32, tensor_op, multiply_add});
  table.push_back({{16, 8, 16}, f16, f16, f16, tensor_op, multiply_add});
  table.push_back({{16, 8, 16}, bf16, bf16, f32, tensor_op, multiply_add});
  for (const MathOperation operation : {multiply_add, multiply_add_saturate})
    table.push_back({{16, 8, 32}, i8, i8, i32, tensor_op, operation});
  for (const Element a : {e4m3, e5m2})
    for (const Element b : {e4m3, e5m2})
      table.push_back({{16, 8, 32}, a, b, f32, tensor_op, multiply_add});
}

void add_warpgroup_instructions(std::vector<MathInstruction>& table) {
  for (const int n : {64, 128, 192, 256}) {
    table.push_back({{64, n, 16}, f16, f16, f32, warpgroup, multiply_add});
    table.push_back({{64, n, 16}, bf16, bf16, f32, warpgroup, multiply_add});
    table.push_back({{64, n, 8}, f32, f32, f32, warpgroup, multiply_add});
    table.push_back({{64, n, 8}, tf32, tf32, f32, warpgroup, multiply_add});
    if (n < 256)  // it keeps two sets of sums in registers
      table.push_back({{64, n, 8}, f32, f32, f32, warpgroup, fast_f32});
    for (const MathOperation operation : {multiply_add, multiply_add_saturate})
      table.push_back({{64, n, 32}, i8, i8, i32, warpgroup, operation});
    for (const Element a : {e4m3, e5m2})
      for (const Element b : {e4m3, e5m2})
        table.push_back({{64, n, 32}, a, b, f32, warpgroup, multiply_add});
  }
}

}  // namespace

std::span<const MathInstruction> math_instructions() {
  static const std::vector<MathInstruction> table = [] {
    std::vector<MathInstruction> rows;
    add_warp_instructions(rows);
    add_warpgroup_instructions(rows);
    return rows;
  }();
  return table;
}

void check(const MathInstruction& instruction) {
  const auto table = math_instructions();
  if (std::find(table.begin(), table.end(), instruction) != table.end()) return;
  std::string valid;
  for (const MathInstruction& row : table)
    if (row.op_class == instruction.op_class) valid += "\n  " + to_string(row);
  BS_THROW(Error, "math instruction: no unit does {}; {} has{}", instruction, instruction.op_class,
           valid);
}

int minimum_capability(const MathInstruction& instruction) {
  if (instruction.op_class == OpClass::simt) return 80;  // the copies into shared memory
  if (instruction.op_class == OpClass::warpgroup) return 90;
  if (instruction.shape == std::array{16, 8, 16} && instruction.a == Element::f64) return 90;
  return instruction.a == Element::e4m3 || instruction.a == Element::e5m2 ? 89 : 80;
}

bool runs_on(const MathInstruction& instruction, int capability) {
  const int first = minimum_capability(instruction);
  return instruction.op_class == OpClass::warpgroup ? capability == first : capability >= first;
}

std::string to_string(OpClass op_class) {
  constexpr const char* names[] = {"simt", "tensor_op", "warpgroup"};
  return names[static_cast<size_t>(op_class)];
}

std::string to_string(MathOperation operation) {
  constexpr const char* names[] = {"multiply_add", "multiply_add_saturate", "fast_f16", "fast_bf16",
                                   "fast_f32"};
  return names[static_cast<size_t>(operation)];
}

std::string to_string(const MathInstruction& i) {
  return format("{}x{}x{} {} {} {} {} {}", i.shape[0], i.shape[1], i.shape[2], i.a, i.b,
                i.accumulator, i.op_class, i.operation);
}

}  // namespace bs

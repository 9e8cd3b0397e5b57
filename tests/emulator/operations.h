#pragma once
/** @file The functions that carry instructions out, found by the words of an opcode. */
#include <bs/tests/emulator/program.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace bs::emulator {

/** @brief An opcode by its words: `ld.global.v2.f32` has four. */
struct Opcode {
  std::vector<std::string_view> words;

  explicit Opcode(std::string_view text);
  std::string_view name() const { return words.front(); }
  std::string_view type() const { return words.back(); }
  bool has(std::string_view word) const {
    return std::find(words.begin() + 1, words.end(), word) != words.end();
  }
  bool is_shared() const { return has("shared") || has("shared::cta") || has("shared::cluster"); }
};

/** @brief What carries out an instruction whose operands are in their places; null where none is
 *  known. What an opcode says besides is noted in `instruction.immediate`, where that is free. */
Execute find_operation(const Opcode& opcode, Instruction& instruction);
/** @brief The same of what a warp carries out together. */
ExecuteWarp find_warp_operation(const Opcode& opcode);

Execute find_arithmetic(const Opcode& opcode);
Execute find_bit_operation(const Opcode& opcode);
Execute find_comparison(const Opcode& opcode, Instruction& instruction);
Execute find_conversion(const Opcode& opcode, Instruction& instruction);
Execute find_memory_operation(const Opcode& opcode, const Instruction& instruction);
Execute find_asynchronous(const Opcode& opcode);
ExecuteWarp find_matrix_operation(const Opcode& opcode);

/** @brief Of `%tid.x` and others: the function that reads one, and its number for the immediate. */
struct SpecialRegister {
  Execute read = nullptr;
  int64_t number = 0;
};
SpecialRegister find_special_register(std::string_view name);

}  // namespace bs::emulator

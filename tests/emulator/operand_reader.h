#pragma once
/** @file The operands of instructions, in the places where operations look for them. */
#include <bs/tests/emulator/names.h>
#include <bs/tests/emulator/operations.h>

#include <string_view>
#include <vector>

namespace bs::emulator {

using Operands = std::vector<std::string_view>;

class OperandReader {
 public:
  explicit OperandReader(Names& names) : names_(names) {}

  /** @brief Fills an instruction that neither branches, nor calls, nor waits for other warps.
   *  @throws std::runtime_error for one that is not known. */
  void read(const Opcode& opcode, const Operands& operands, Instruction& i);
  /** @brief A predicate, or its contrary `!%p1`. */
  void take_predicate(std::string_view text, int& number, bool& is_not);

 private:
  bool read_parameter(const Opcode& o, const Operands& operands, Instruction& i);
  void read_warp(const Opcode& o, const Operands& operands, Instruction& i);
  void read_matrices(const Opcode& o, const Operands& operands, Instruction& i);
  void read_warpgroup(const Opcode& o, const Operands& operands, Instruction& i);
  void read_pack(const Opcode& o, const Operands& operands, Instruction& i);
  void read_wide_pack(const Operands& operands, Instruction& i);
  void read_others(const Opcode& o, const Operands& operands, Instruction& i);
  void read_memory(const Opcode& o, const Operands& operands, Instruction& i);
  void read_values(const Operands& operands, Instruction& i);
  void read_copy(const Opcode& o, const Operands& operands, Instruction& i);
  void read_tensor_copy(const Opcode& o, const Operands& operands, Instruction& i);

  void take_results(std::string_view text, Instruction& i);
  void take_address(std::string_view text, int& base, int64_t& offset);
  void take_value_or_vector(std::string_view text, int& one, std::vector<int>& several);
  int place_of(std::string_view text);
  std::vector<int> vector_of(std::string_view text);
  void append(std::vector<int>& list, std::string_view text);

  Names& names_;
};

}  // namespace bs::emulator

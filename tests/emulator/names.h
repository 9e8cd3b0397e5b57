#pragma once
/** @file The names that stand in a kernel: registers, constants, variables, parameters and labels.
 */
#include <bs/tests/emulator/module.h>
#include <bs/tests/emulator/text.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bs::emulator {

/** @brief What a declaration says of a register. */
enum class RegisterKind : uint8_t {
  number,
  predicate,
  parameter,  ///< it holds an argument or the result of a function
  wide        ///< 128 bits: the next register has the upper ones
};

/** @brief From names to registers. Those that are declared in braces are seen there alone, and hide
 *  others of their name. */
class Names {
 public:
  Names(const Kernel& kernel, Program& program) : kernel_(kernel), program_(program) {}

  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }
  int declare(std::string_view name, RegisterKind kind = RegisterKind::number);
  void add_local(const std::string& name, size_t bytes);
  void add_shared(const Variable& variable) { shared_[variable.name] = variable; }

  bool is(std::string_view name, RegisterKind kind) const;
  int constant(uint64_t value);
  const Parameter* parameter(std::string_view name) const;
  /** @brief The register with an operand that is a value or an address; -1 of `_`. What has to be
   *  computed for it stands in the program then.
   *  @throws std::runtime_error for a name that stands for nothing. */
  int value(std::string_view text);
  /** @brief Behind the last instruction: where dynamic shared memory begins is known then. */
  void finish();

 private:
  struct Register {
    int number;
    RegisterKind kind;
  };
  const Register* find(std::string_view name) const;
  int computed(Execute execute, int64_t immediate);
  int place(const std::string& name, uint64_t offset);
  size_t shared_place(const Variable& variable);

  const Kernel& kernel_;
  Program& program_;
  std::vector<std::unordered_map<std::string, Register>> scopes_{1};
  std::unordered_map<uint64_t, int> constants_;
  std::unordered_map<std::string, size_t> locals_, shared_places_;
  std::unordered_map<std::string, Variable> shared_;
  std::vector<std::pair<int, uint64_t>> dynamic_;  ///< registers, and offsets from its begin
  size_t dynamic_alignment_ = 16;
};

/** @brief Labels are seen in the braces that they stand in. */
class Labels {
 public:
  void open() { path_.push_back(++blocks_); }
  void close() { path_.pop_back(); }
  void add(std::string_view name, int at);
  /** @brief An instruction, by its number, goes there; to one of several that its list names. */
  void refer(size_t instruction, std::string_view name, bool in_list);
  /** @throws std::runtime_error for a label that is nowhere. */
  void resolve(std::vector<Instruction>& code) const;

 private:
  struct Reference {
    size_t instruction;
    std::vector<int> path;
    std::string name;
    bool in_list;
  };
  int find(const Reference& reference) const;

  std::vector<int> path_{0};
  int blocks_ = 0;
  std::unordered_map<std::string, int> places_;
  std::vector<Reference> references_;
};

}  // namespace bs::emulator

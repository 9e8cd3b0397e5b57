#include <bs/tests/emulator/operand_reader.h>

#include <algorithm>
#include <stdexcept>

namespace bs::emulator {

namespace {

constexpr uint64_t whole_warp = 0xffffffff;

}  // namespace

void OperandReader::read(const Opcode& o, const Operands& operands, Instruction& i) {
  const std::string_view name = o.name();
  if (read_parameter(o, operands, i)) return;
  if (name == "shfl" || name == "vote" || name == "match" || name == "redux" || name == "elect" ||
      name == "bar" || name == "barrier") {
    read_warp(o, operands, i);
  } else if (name == "ldmatrix" || name == "stmatrix" || name == "mma" || name == "wgmma") {
    read_matrices(o, operands, i);
  } else if (name == "mov" && (operands[0][0] == '{' || operands[1][0] == '{')) {
    read_pack(o, operands, i);
  } else {
    read_others(o, operands, i);
    i.execute = find_operation(o, i);
  }
  if (i.execute == nullptr && i.execute_warp == nullptr)
    throw std::runtime_error("an unknown instruction");
}

/// Parameters of functions lie in registers; those of kernels in memory, by their offsets.
bool OperandReader::read_parameter(const Opcode& o, const Operands& operands, Instruction& i) {
  const bool loads = o.name() == "ld";
  if (!o.has("param") || (!loads && o.name() != "st")) return false;
  const std::string_view address = inside_of_brackets(operands[loads ? 1 : 0]);
  const size_t plus = std::min(address.size(), address.find('+'));
  const std::string_view name = trimmed(address.substr(0, plus));
  if (names_.is(name, RegisterKind::parameter)) {
    const bool is_first = plus == address.size() || number_of(address.substr(plus + 1)) == 0;
    const std::string_view part = is_first ? name : trimmed(address);
    i.to = names_.value(loads ? operands[0] : part);
    i.a = names_.value(loads ? part : operands[1]);
    i.execute = [](Thread& t, const Instruction& at) { t.registers[at.to] = t.registers[at.a]; };
    return true;
  }
  const Parameter* const parameter = names_.parameter(name);
  if (!loads || parameter == nullptr) return false;
  i.immediate = static_cast<int64_t>(parameter->offset);
  if (plus < address.size())
    i.immediate += static_cast<int64_t>(number_of(address.substr(plus + 1)));
  if (operands[0].starts_with('{')) {
    i.list = vector_of(operands[0]);
  } else {
    i.to = names_.value(operands[0]);
  }
  i.execute = find_operation(o, i);
  return i.execute != nullptr;
}

void OperandReader::read_warp(const Opcode& o, const Operands& operands, Instruction& i) {
  i.kind = Kind::warp;
  i.execute_warp = find_warp_operation(o);
  i.e = names_.value(operands.back());  // the lanes
  if (o.name() == "bar" || o.name() == "barrier") return;
  take_results(operands[0], i);
  if (o.name() == "vote") return take_predicate(operands[1], i.a, i.a_is_not);
  if (o.name() != "elect") i.a = names_.value(operands[1]);
  if (o.name() != "shfl") return;
  i.b = names_.value(operands[2]);
  i.c = names_.value(operands[3]);
}

void OperandReader::read_matrices(const Opcode& o, const Operands& operands, Instruction& i) {
  if (o.name() == "wgmma" && !o.has("mma_async")) {  // products are there at once
    i.execute = [](Thread&, const Instruction&) {};
    return;
  }
  i.kind = Kind::warp;
  i.e = names_.constant(whole_warp);
  i.execute_warp = find_warp_operation(o);
  if (o.name() == "ldmatrix" || o.name() == "stmatrix") {
    const bool loads = o.name() == "ldmatrix";
    i.list = vector_of(operands[loads ? 0 : 1]);
    take_address(operands[loads ? 1 : 0], i.a, i.immediate);
    return;
  }
  for (size_t k = 0; k < 4; ++k) append(i.list, operands[k]);
  if (o.name() == "wgmma") read_warpgroup(o, operands, i);
}

/// Behind the operands stand the signs of a and b, and which of those in memory are turned.
void OperandReader::read_warpgroup(const Opcode& o, const Operands& operands, Instruction& i) {
  for (const std::string_view word : o.words)
    if (word.starts_with("m64n")) i.b_immediate = static_cast<int64_t>(number_of(word.substr(4)));
  const bool in_registers = operands[1].starts_with('{');
  const auto says = [&](size_t number, bool negative) {
    const auto value =
        number < operands.size() ? static_cast<int64_t>(number_of(operands[number])) : int64_t{0};
    return negative ? value < 0 : value != 0;
  };
  i.immediate = (in_registers ? 1 : 0) | (says(4, true) ? 8 : 0) | (says(5, true) ? 16 : 0);
  if (in_registers) {
    i.immediate |= says(6, false) ? 4 : 0;
  } else {
    i.immediate |= (says(6, false) ? 2 : 0) | (says(7, false) ? 4 : 0);
  }
}

/// A register to or from several narrower ones.
void OperandReader::read_pack(const Opcode& o, const Operands& operands, Instruction& i) {
  if (o.type() == "b128") return read_wide_pack(operands, i);
  const bool unpacks = operands[0].starts_with('{');
  i.list = vector_of(operands[unpacks ? 0 : 1]);
  const auto bits = static_cast<int64_t>(8 * size_of_type(o.type()));
  i.immediate = bits / i.elements();
  if (unpacks) {
    i.a = names_.value(operands[1]);
    i.execute = [](Thread& t, const Instruction& at) {
      const uint64_t all = t.registers[at.a], mask = ~uint64_t{0} >> (64 - at.immediate);
      for (int k = 0; k < at.elements(); ++k)
        if (const int to = at.list[static_cast<size_t>(k)]; to >= 0)
          t.registers[to] = all >> (k * at.immediate) & mask;
    };
    return;
  }
  i.to = names_.value(operands[0]);
  i.execute = [](Thread& t, const Instruction& at) {
    const uint64_t mask = ~uint64_t{0} >> (64 - at.immediate);
    uint64_t all = 0;
    for (int k = 0; k < at.elements(); ++k)
      all |= (t.registers[at.list[static_cast<size_t>(k)]] & mask) << (k * at.immediate);
    t.registers[at.to] = all;
  };
}

/// Two registers of 64 bits to or from one of 128.
void OperandReader::read_wide_pack(const Operands& operands, Instruction& i) {
  const bool unpacks = operands[0].starts_with('{');
  i.list = vector_of(operands[unpacks ? 0 : 1]);
  (unpacks ? i.a : i.to) = names_.value(operands[unpacks ? 1 : 0]);
  if (unpacks) {
    i.execute = [](Thread& t, const Instruction& at) {
      for (int k = 0; k < 2; ++k)
        t.registers[at.list[static_cast<size_t>(k)]] = t.registers[at.a + k];
    };
  } else {
    i.execute = [](Thread& t, const Instruction& at) {
      for (int k = 0; k < 2; ++k)
        t.registers[at.to + k] = t.registers[at.list[static_cast<size_t>(k)]];
    };
  }
}

void OperandReader::take_value_or_vector(std::string_view text, int& one,
                                         std::vector<int>& several) {
  if (names_.is(text, RegisterKind::wide)) {
    several = {names_.value(text), names_.value(text) + 1};
  } else if (text.starts_with('{')) {
    several = vector_of(text);
  } else {
    one = names_.value(text);
  }
}

void OperandReader::read_others(const Opcode& o, const Operands& operands, Instruction& i) {
  const std::string_view name = o.name();
  if (name == "ld" || name == "ldu" || name == "st" || name == "atom" || name == "red") {
    read_memory(o, operands, i);
  } else if (name == "mbarrier") {
    const size_t first = operands[0].starts_with('[') ? 0 : 1;
    if (first == 1) i.to = names_.value(operands[0]);
    take_address(operands[first], i.a, i.immediate);
    if (operands.size() > first + 1) i.b = names_.value(operands[first + 1]);
  } else if (name == "cp") {
    read_copy(o, operands, i);
  } else if (name == "setp") {
    take_results(operands[0], i);
    i.a = names_.value(operands[1]);
    i.b = names_.value(operands[2]);
    if (operands.size() > 3) take_predicate(operands[3], i.e, i.c_is_not);
  } else if (name == "selp") {
    i.to = names_.value(operands[0]);
    i.a = names_.value(operands[1]);
    i.b = names_.value(operands[2]);
    take_predicate(operands[3], i.c, i.c_is_not);
  } else {
    read_values(operands, i);
  }
}

void OperandReader::read_memory(const Opcode& o, const Operands& operands, Instruction& i) {
  const std::string_view name = o.name();
  if (name == "ld" || name == "ldu") {
    take_value_or_vector(operands[0], i.to, i.list);
    take_address(operands[1], i.a, i.immediate);
  } else if (name == "st") {
    take_address(operands[0], i.a, i.immediate);
    take_value_or_vector(operands[1], i.b, i.list);
    if (o.has("async")) i.e = place_of(operands[2]);
  } else {
    const size_t first = name == "atom" ? 1 : 0;
    if (first == 1) i.to = names_.value(operands[0]);
    take_address(operands[first], i.a, i.immediate);
    i.b = names_.value(operands[first + 1]);
    if (operands.size() > first + 2) i.c = names_.value(operands[first + 2]);
  }
}

void OperandReader::read_values(const Operands& operands, Instruction& i) {
  int* const places[] = {&i.a, &i.b, &i.c, &i.e};
  for (size_t k = 0; k < operands.size() && k < 5; ++k) {
    if (operands[k].starts_with('[')) return;  // what is only prefetched
    if (k == 0) {
      take_results(operands[0], i);
    } else {
      *places[k - 1] = names_.value(operands[k]);
    }
  }
}

void OperandReader::read_copy(const Opcode& o, const Operands& operands, Instruction& i) {
  const bool waits = o.has("commit_group") || o.has("wait_group") || o.has("wait_all");
  if (waits || o.has("prefetch")) return;
  if (o.has("tensor")) return read_tensor_copy(o, operands, i);
  if (o.has("bulk")) {
    i.a = place_of(operands[0]);
    i.b = place_of(operands[1]);
    i.c = names_.value(operands[2]);
    if (operands.size() > 3 && operands[3].starts_with('[')) i.e = place_of(operands[3]);
    return;
  }
  take_address(operands[0], i.a, i.immediate);
  if (o.has("mbarrier")) return;
  take_address(operands[1], i.b, i.b_immediate);
  i.c = names_.value(operands[2]);
  const size_t hints = o.has("L2::cache_hint") ? 1 : 0;  // the last operand
  if (operands.size() < 4 + hints) return;
  int& last = names_.is(operands[3], RegisterKind::predicate) ? i.ignores : i.e;
  last = names_.value(operands[3]);
}

/// `[shared], [map, {x, y}], [mbarrier], {offsets}, lanes`, or the other way round to store.
void OperandReader::read_tensor_copy(const Opcode& o, const Operands& operands, Instruction& i) {
  const bool loads = o.has("mbarrier::complete_tx::bytes");
  const Operands tensor = split(inside_of_brackets(operands[loads ? 1 : 0]));
  take_address(tensor[0], i.b, i.b_immediate);
  i.list = vector_of(tensor[1]);
  i.a = place_of(operands[loads ? 0 : 1]);
  if (!loads) return;
  i.e = place_of(operands[2]);
  if (o.has("im2col")) append(i.list, operands[3]);
  if (o.has("multicast::cluster")) i.c = names_.value(operands[o.has("im2col") ? 4 : 3]);
}

void OperandReader::take_predicate(std::string_view text, int& number, bool& is_not) {
  text = trimmed(text);
  is_not = text[0] == '!';
  number = names_.value(is_not ? text.substr(1) : text);
}
/// One register, or two as in `%p1|%p2`.
void OperandReader::take_results(std::string_view text, Instruction& i) {
  const size_t bar = text.find('|');
  i.to = names_.value(text.substr(0, bar));
  if (bar != std::string_view::npos) i.also_to = names_.value(text.substr(bar + 1));
}
std::vector<int> OperandReader::vector_of(std::string_view text) {
  std::vector<int> registers;
  if (!text.starts_with('{')) return {names_.value(text)};
  for (const std::string_view one : split(inside_of_brackets(text)))
    registers.push_back(names_.value(one));
  return registers;
}
void OperandReader::append(std::vector<int>& list, std::string_view text) {
  const std::vector<int> more = vector_of(text);
  list.insert(list.end(), more.begin(), more.end());
}
/// `[base+offset]`.
void OperandReader::take_address(std::string_view text, int& base, int64_t& offset) {
  if (text.starts_with('[')) text = inside_of_brackets(text);
  const size_t plus = std::min(text.size(), text.find('+'));
  if (plus < text.size()) offset = static_cast<int64_t>(number_of(text.substr(plus + 1)));
  base = names_.value(text.substr(0, plus));
}
/// An address without an offset.
int OperandReader::place_of(std::string_view text) {
  int base = -1;
  int64_t offset = 0;
  take_address(text, base, offset);
  if (offset != 0) throw std::runtime_error("an offset where none is known");
  return base;
}

}  // namespace bs::emulator

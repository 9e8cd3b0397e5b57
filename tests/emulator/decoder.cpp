#include <bs/tests/emulator/decoder.h>
#include <bs/tests/emulator/operand_reader.h>

#include <algorithm>
#include <stdexcept>

namespace bs::emulator {

namespace {

class Decoder {
 public:
  Decoder(const Kernel& kernel, Program& program)
      : kernel_(kernel), program_(program), names_(kernel, program), operands_(names_) {}

  void run() {
    if (kernel_.is_function) {
      for (const Parameter& parameter : kernel_.parameters)
        names_.declare(parameter.name, RegisterKind::parameter);
      if (kernel_.result) declare_parameter(kernel_.result->name, kernel_.result->bytes);
    }
    find_tables();
    while (read_statement()) {
    }
    Instruction last;
    last.kind = Kind::end;
    program_.code.push_back(last);
    labels_.resolve(program_.code);
    names_.finish();
  }

 private:
  /// `name: .branchtargets one, two;`
  void find_tables() {
    constexpr std::string_view word = ".branchtargets";
    const std::string_view text = kernel_.body;
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const size_t colon = text.rfind(':', at);
      size_t begin = colon;
      while (begin > 0 && is_name(text[begin - 1])) --begin;
      const size_t targets = at + word.size();
      tables_[std::string(text.substr(begin, colon - begin))] =
          split(text.substr(targets, text.find(';', at) - targets));
    }
  }

  bool read_statement() {
    const std::string_view text = kernel_.body;
    while (at_ < text.size() && trimmed(text.substr(at_, 1)).empty()) ++at_;
    if (at_ >= text.size()) return false;
    const std::string_view rest = text.substr(at_);
    if (rest.starts_with(".loc ") || rest.starts_with(".loc\t")) {
      at_ = std::min(text.size(), text.find('\n', at_));
      return true;
    }
    if (rest[0] == '{' || rest[0] == '}' || rest[0] == ';') {
      if (rest[0] == '{') open_block();
      if (rest[0] == '}') close_block();
      ++at_;
      return true;
    }
    if (read_label(rest)) return true;
    const size_t end = std::min(text.size(), text.find(';', at_));
    const std::string_view statement = trimmed(text.substr(at_, end - at_));
    at_ = end + 1;
    try {
      decode(statement);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(kernel_.name + ": " + error.what() +
                               ", in: " + std::string(statement));
    }
    return true;
  }

  void open_block() {
    names_.open();
    labels_.open();
  }
  void close_block() {
    names_.close();
    labels_.close();
  }

  bool read_label(std::string_view rest) {
    size_t end = 0;
    while (end < rest.size() && is_name(rest[end])) ++end;
    size_t colon = end;
    while (colon < rest.size() && trimmed(rest.substr(colon, 1)).empty()) ++colon;
    if (end == 0 || colon >= rest.size() || rest[colon] != ':') return false;
    if (rest.substr(colon, 2) == "::") return false;
    labels_.add(rest.substr(0, end), static_cast<int>(program_.code.size()));
    at_ += colon + 1;
    const std::string_view behind = trimmed(rest.substr(colon + 1, 40));
    if (behind.starts_with(".branchtargets") || behind.starts_with(".callprototype"))
      at_ = kernel_.body.find(';', at_) + 1;
    return true;
  }

  void decode(std::string_view text) {
    Instruction i;
    i.text = text;
    if (text[0] == '@') {
      const size_t end = text.find_first_of(" \t\n");
      operands_.take_predicate(text.substr(1, end - 1), i.guard, i.guard_is_not);
      text = trimmed(text.substr(end));
    }
    if (text[0] == '.') return declare(text);
    const size_t end = std::min(text.size(), text.find_first_of(" \t\n"));
    const Opcode opcode(text.substr(0, end));
    const Operands operands = split(text.substr(end));
    if (!decode_control(opcode, operands, i)) operands_.read(opcode, operands, i);
    program_.code.push_back(i);
  }

  void declare(std::string_view text) {
    const Operands words = words_of(text);
    if (words[0] == ".pragma") return;
    if (words[0] == ".reg") {
      const RegisterKind kind = words[1] == ".pred"   ? RegisterKind::predicate
                                : words[1] == ".b128" ? RegisterKind::wide
                                                      : RegisterKind::number;
      const size_t names = text.find(words[1]) + words[1].size();
      for (const std::string_view name : split(text.substr(names))) declare_registers(name, kind);
      return;
    }
    const Declared name = declared(words.back());
    size_t alignment = 1, size = 1;
    for (size_t k = 1; k + 1 < words.size(); ++k) {
      if (words[k] == ".align") {
        alignment = number_of(words[++k]);
      } else if (words[k][0] == '.') {
        size = size_of_type(words[k].substr(1));
      }
    }
    const size_t bytes = size * name.elements;
    if (words[0] == ".param") {
      declare_parameter(name.name, bytes);
    } else if (words[0] == ".local") {
      names_.add_local(name.name, bytes);
    } else if (words[0] == ".shared") {
      names_.add_shared({name.name, std::max(alignment, size), bytes, true, false, nullptr});
    } else {
      throw std::runtime_error("an unknown directive");
    }
  }

  /// A result of more than eight bytes has two registers. The second one is named as PTX addresses
  /// it, with +8 behind the name.
  void declare_parameter(const std::string& name, size_t bytes) {
    if (bytes > 2 * sizeof(uint64_t)) throw std::runtime_error("a parameter of many bytes");
    names_.declare(name, RegisterKind::parameter);
    if (bytes > sizeof(uint64_t)) names_.declare(name + "+8", RegisterKind::parameter);
  }

  /// `%r<9>` declares %r0 to %r8.
  void declare_registers(std::string_view text, RegisterKind kind) {
    const size_t bracket = text.find('<');
    if (bracket == std::string_view::npos) {
      names_.declare(text, kind);
      return;
    }
    const uint64_t count = number_of(text.substr(bracket + 1));
    for (uint64_t k = 0; k < count; ++k)
      names_.declare(std::string(text.substr(0, bracket)) + std::to_string(k), kind);
  }

  /// Branches, calls and what threads wait at; whether it was one.
  bool decode_control(const Opcode& o, const Operands& operands, Instruction& i) {
    const std::string_view name = o.name();
    if (name == "ret" || name == "exit") {
      i.kind = Kind::end;
    } else if (name == "bra") {
      i.execute = [](Thread& t, const Instruction& at) { t.next = at.target; };
      labels_.refer(program_.code.size(), operands[0], false);
    } else if (name == "brx") {
      i.a = names_.value(operands[0]);
      i.execute = [](Thread& t, const Instruction& at) {
        t.next = at.list[t.read<uint32_t>(at.a)];
      };
      for (const std::string_view target : tables_.at(std::string(operands[1])))
        labels_.refer(program_.code.size(), target, true);
    } else if (name == "call") {
      decode_call(operands, i);
    } else if ((name == "bar" || name == "barrier") && !o.has("warp")) {
      decode_barrier(o, operands, i);
    } else {
      return false;
    }
    return true;
  }

  void decode_barrier(const Opcode& o, const Operands& operands, Instruction& i) {
    if (o.has("cluster")) {
      i.kind = o.has("wait") ? Kind::cluster_wait : Kind::cluster_arrive;
      return;
    }
    i.kind = Kind::barrier;
    if (o.has("red")) {
      i.use = o.has("popc") ? BarrierUse::count : o.has("and") ? BarrierUse::all : BarrierUse::any;
      i.to = names_.value(operands[0]);
      i.a = names_.value(operands[1]);
      if (operands.size() == 4) i.b = names_.value(operands[2]);
      operands_.take_predicate(operands.back(), i.c, i.c_is_not);
      return;
    }
    if (o.has("arrive")) i.use = BarrierUse::arrive;
    i.a = names_.value(operands[0]);
    if (operands.size() > 1) i.b = names_.value(operands[1]);
  }

  /// A function has registers of its own; those of arguments and results are named by parameters.
  void decode_call(const Operands& operands, Instruction& i) {
    size_t at = 0;
    if (operands[0].starts_with('(')) i.to = names_.value(inside_of_brackets(operands[at++]));
    const auto found = kernel_.module->kernels.find(operands[at++]);
    if (found == kernel_.module->kernels.end()) {  // such as an assertion's
      i.execute = [](Thread& t, const Instruction& where) { fail(*t.cta, "a call", &where); };
      return;
    }
    if (at < operands.size())
      for (const std::string_view argument : split(inside_of_brackets(operands[at])))
        i.list.push_back(names_.value(argument));
    i.immediate = reinterpret_cast<int64_t>(found->second.get());
    i.execute = [](Thread& t, const Instruction& where) {
      call(t, where, *reinterpret_cast<Kernel*>(where.immediate));
    };
  }

  /// The registers of a function's parameters are its first, then that of its result.
  static void call(Thread& t, const Instruction& i, Kernel& function) {
    const Program& program = function.program();
    std::vector<uint64_t> registers(static_cast<size_t>(program.registers));
    std::vector<std::byte> local(program.local_bytes + 16);
    for (const auto& [number, value] : program.constants)
      registers[static_cast<size_t>(number)] = value;
    for (size_t k = 0; k < i.list.size(); ++k) registers[k] = t.registers[i.list[k]];
    Thread inner = t;
    inner.registers = registers.data();
    inner.local = local.data();
    inner.next = 0;
    while (true) {
      const Instruction& step = program.code[static_cast<size_t>(inner.next++)];
      if (step.guard >= 0 && !inner.holds(step.guard, step.guard_is_not)) continue;
      if (step.kind == Kind::end) break;
      if (step.kind != Kind::plain) fail(*t.cta, "a function that waits", &step);
      step.execute(inner, step);
    }
    if (i.to < 0) return;
    t.registers[i.to] = registers[i.list.size()];
    if (function.result->bytes > sizeof(uint64_t))
      t.registers[i.to + 1] = registers[i.list.size() + 1];
  }

  const Kernel& kernel_;
  Program& program_;
  Names names_;
  Labels labels_;
  OperandReader operands_;
  std::unordered_map<std::string, Operands> tables_;
  size_t at_ = 0;
};

}  // namespace

Program decoded(const Kernel& kernel) {
  Program program;
  program.name = kernel.name;
  Decoder(kernel, program).run();
  return program;
}

}  // namespace bs::emulator

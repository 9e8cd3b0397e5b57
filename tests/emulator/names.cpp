#include <bs/tests/emulator/names.h>
#include <bs/tests/emulator/operations.h>

#include <algorithm>
#include <stdexcept>

namespace bs::emulator {

namespace {

size_t rounded_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

std::string place_of_label(int block, std::string_view name) {
  return std::to_string(block) + ":" + std::string(name);
}

}  // namespace

int Names::declare(std::string_view name, RegisterKind kind) {
  const int number = program_.registers;
  program_.registers += kind == RegisterKind::wide ? 2 : 1;
  scopes_.back()[std::string(name)] = {number, kind};
  return number;
}

void Names::add_local(const std::string& name, size_t bytes) {
  program_.local_bytes = rounded_up(program_.local_bytes, 16);
  locals_[name] = program_.local_bytes;
  program_.local_bytes += bytes;
}

const Names::Register* Names::find(std::string_view name) const {
  const std::string key(name);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(key); found != scope->end()) return &found->second;
  return nullptr;
}

bool Names::is(std::string_view name, RegisterKind kind) const {
  const Register* const found = find(name);
  return found != nullptr && found->kind == kind;
}

int Names::constant(uint64_t value) {
  const auto [found, is_new] = constants_.try_emplace(value, program_.registers);
  if (is_new) program_.constants.emplace_back(program_.registers++, value);
  return found->second;
}

const Parameter* Names::parameter(std::string_view name) const {
  const auto found = std::find_if(kernel_.parameters.begin(), kernel_.parameters.end(),
                                  [&](const Parameter& p) { return p.name == name; });
  return found == kernel_.parameters.end() ? nullptr : &*found;
}

int Names::value(std::string_view text) {
  text = trimmed(text);
  if (text == "_") return -1;
  if (const Register* const found = find(text)) return found->number;
  if (text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) return constant(number_of(text));
  if (text[0] == '%') {
    const SpecialRegister special = find_special_register(text);
    if (special.read != nullptr) return computed(special.read, special.number);
  }
  const size_t plus = std::min(text.size(), text.find('+'));
  const std::string name(trimmed(text.substr(0, plus)));
  return place(name, plus < text.size() ? number_of(text.substr(plus + 1)) : 0);
}

/// A register that an instruction before this one fills.
int Names::computed(Execute execute, int64_t immediate) {
  Instruction i;
  i.execute = execute;
  i.to = program_.registers++;
  i.immediate = immediate;
  program_.code.push_back(i);
  return i.to;
}

int Names::place(const std::string& name, uint64_t offset) {
  if (const auto own = shared_.find(name); own != shared_.end())
    return constant(shared_place(own->second) + offset);
  const auto& variables = kernel_.module->variables;
  if (const auto found = variables.find(name); found != variables.end()) {
    const Variable& variable = found->second;
    if (!variable.is_shared) return constant(reinterpret_cast<uint64_t>(variable.data) + offset);
    if (!variable.is_dynamic) return constant(shared_place(variable) + offset);
    dynamic_alignment_ = std::max(dynamic_alignment_, variable.alignment);
    dynamic_.emplace_back(program_.registers, offset);
    return program_.registers++;
  }
  if (const Parameter* const found = parameter(name))
    return computed(
        [](Thread& t, const Instruction& i) {
          t.registers[i.to] = reinterpret_cast<uint64_t>(t.cta->parameters + i.immediate);
        },
        static_cast<int64_t>(found->offset + offset));
  if (const auto found = locals_.find(name); found != locals_.end())
    return computed(
        [](Thread& t, const Instruction& i) {
          t.registers[i.to] = reinterpret_cast<uint64_t>(t.local + i.immediate);
        },
        static_cast<int64_t>(found->second + offset));
  throw std::runtime_error("no name " + name);
}

size_t Names::shared_place(const Variable& variable) {
  const auto [found, is_new] = shared_places_.try_emplace(variable.name, 0);
  if (is_new) {
    program_.static_shared =
        rounded_up(program_.static_shared, std::max<size_t>(variable.alignment, 16));
    found->second = shared_begins + program_.static_shared;
    program_.static_shared += variable.bytes;
  }
  return found->second;
}

void Names::finish() {
  program_.dynamic_begins = rounded_up(shared_begins + program_.static_shared, dynamic_alignment_);
  for (const auto& [number, offset] : dynamic_)
    program_.constants.emplace_back(number, program_.dynamic_begins + offset);
}

void Labels::add(std::string_view name, int at) {
  places_[place_of_label(path_.back(), name)] = at;
}

void Labels::refer(size_t instruction, std::string_view name, bool in_list) {
  references_.push_back({instruction, path_, std::string(name), in_list});
}

void Labels::resolve(std::vector<Instruction>& code) const {
  for (const Reference& reference : references_) {
    const int at = find(reference);
    Instruction& i = code[reference.instruction];
    if (reference.in_list) {
      i.list.push_back(at);
    } else {
      i.target = at;
    }
  }
}

int Labels::find(const Reference& reference) const {
  for (auto block = reference.path.rbegin(); block != reference.path.rend(); ++block) {
    const auto found = places_.find(place_of_label(*block, reference.name));
    if (found != places_.end()) return found->second;
  }
  throw std::runtime_error("no label " + reference.name);
}

}  // namespace bs::emulator

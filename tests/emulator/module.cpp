#include <bs/tests/emulator/decoder.h>
#include <bs/tests/emulator/module.h>
#include <bs/tests/emulator/text.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace bs::emulator {

namespace {

constexpr std::array lines_alone = {".loc", ".file", ".version", ".target", ".address_size"};

bool is_type(std::string_view word) {
  return word.size() > 2 && word[0] == '.' &&
         std::string_view("bsuf").find(word[1]) != std::string_view::npos && word[2] >= '0' &&
         word[2] <= '9';
}

size_t rounded_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

/// `.param .align 8 .b8 name[24]`
Parameter parameter_of(std::string_view text, size_t& end) {
  size_t size = 0, alignment = 0;
  Declared name;
  const std::vector<std::string_view> words = words_of(text);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == ".align") {  // before the type it is the parameter's, behind .ptr a pointer's
      const size_t value = number_of(words[++i]);
      if (size == 0) alignment = value;
    } else if (is_type(words[i])) {
      size = size_of_type(words[i].substr(1));
    } else if (words[i][0] != '.') {
      name = declared(words[i]);
    }
  }
  const size_t offset = rounded_up(end, std::max(alignment, size));
  end = offset + size * name.elements;
  return {name.name, offset, size * name.elements};
}

std::byte* memory_for(const Variable& variable) {
  constexpr size_t line = 256;
  const size_t bytes = rounded_up(variable.bytes + 1, line);
  void* const memory = std::aligned_alloc(line, bytes);
  if (memory == nullptr) throw std::runtime_error("no memory for " + variable.name);
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), text_(module.text) {}

  void run() {
    while (skip_to_statement()) {
      const size_t end = end_of_head();
      const std::string_view head = trimmed(text_.substr(at_, end - at_));
      const std::vector<std::string_view> words = words_of(head);
      const auto stands = [&](std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
      };
      if (stands(".entry") || stands(".func")) {
        add_kernel(head, end, stands(".func"));
      } else {
        add_variable(head);
        at_ = end + 1;
      }
    }
  }

 private:
  /// Over lines and sections that only debuggers read.
  bool skip_to_statement() {
    while (true) {
      while (at_ < text_.size() && (text_[at_] == ';' || trimmed(text_.substr(at_, 1)).empty()))
        ++at_;
      if (at_ >= text_.size() || text_[at_] == '\0') return false;
      const std::string_view rest = text_.substr(at_);
      const bool is_line = std::any_of(lines_alone.begin(), lines_alone.end(),
                                       [&](const char* word) { return rest.starts_with(word); });
      if (!is_line && !rest.starts_with(".section")) return true;
      at_ = std::min(text_.size(), text_.find(is_line ? '\n' : '}', at_) + 1);
      if (at_ == 0) return false;
    }
  }

  /// Of a declaration its `;`, of a function the brace that opens its body.
  size_t end_of_head() const {
    bool has_values = false;
    for (size_t i = at_; i < text_.size(); ++i) {
      has_values |= text_[i] == '=';
      if (text_[i] == ';' || (text_[i] == '{' && !has_values)) return i;
    }
    return text_.size();
  }

  void add_kernel(std::string_view head, size_t end, bool is_function) {
    auto kernel = std::make_unique<Kernel>();
    kernel->module = &module_;
    kernel->is_function = is_function;
    const std::string_view word = is_function ? ".func" : ".entry";
    std::string_view rest = trimmed(head.substr(head.find(word) + word.size()));
    const auto take_list = [&] {
      const size_t close = rest.find(')');
      const std::string_view list = rest.substr(1, close - 1);
      rest = trimmed(rest.substr(close + 1));
      return list;
    };
    size_t unused = 0;
    if (is_function && rest.starts_with('(')) kernel->result = parameter_of(take_list(), unused);
    size_t length = 0;
    while (length < rest.size() && is_name(rest[length])) ++length;
    kernel->name = rest.substr(0, length);
    rest = trimmed(rest.substr(length));
    if (rest.starts_with('('))
      for (const std::string_view parameter : split(take_list()))
        kernel->parameters.push_back(parameter_of(parameter, kernel->parameter_bytes));
    read_attributes(*kernel, rest);
    at_ = end + 1;
    if (end >= text_.size() || text_[end] == ';') return;  // declared only
    const size_t close = end_of_body(end);
    kernel->body = text_.substr(end + 1, close - end - 1);
    at_ = close + 1;
    std::string name = kernel->name;
    module_.kernels[std::move(name)] = std::move(kernel);
  }

  static void read_attributes(Kernel& kernel, std::string_view text) {
    const std::string_view cluster = ".reqnctapercluster", threads = ".maxntid";
    if (const size_t at = text.find(cluster); at != std::string_view::npos) {
      const auto sizes = split(text.substr(at + cluster.size()));
      for (size_t i = 0; i < 3; ++i)
        kernel.cluster[i] = i < sizes.size() ? static_cast<uint32_t>(number_of(sizes[i])) : 1;
    }
    if (const size_t at = text.find(threads); at != std::string_view::npos)
      kernel.most_threads = static_cast<int>(number_of(text.substr(at + threads.size())));
  }

  size_t end_of_body(size_t open) const {
    int depth = 0;
    for (size_t i = open; i < text_.size(); ++i) {
      if (text_[i] == '"') i = text_.find('"', i + 1);
      if (text_[i] == '{') ++depth;
      if (text_[i] == '}' && --depth == 0) return i;
    }
    throw std::runtime_error("PTX: a function without an end");
  }

  void add_variable(std::string_view head) {
    const size_t equals = std::min(head.size(), head.find('='));
    Variable variable;
    bool is_variable = false;
    size_t size = 1;
    const std::vector<std::string_view> words = words_of(head.substr(0, equals));
    for (size_t i = 0; i < words.size(); ++i) {
      if (words[i] == ".align") {
        variable.alignment = number_of(words[++i]);
      } else if (is_type(words[i])) {
        size = size_of_type(words[i].substr(1));
      } else if (words[i][0] == '.') {
        variable.is_shared |= words[i] == ".shared";
        variable.is_dynamic |= words[i] == ".extern";
        is_variable |= words[i] == ".shared" || words[i] == ".global" || words[i] == ".const";
      } else {
        const Declared name = declared(words[i]);
        variable.name = name.name;
        variable.bytes = name.elements;
      }
    }
    if (!is_variable || variable.name.empty()) return;
    variable.bytes *= size;
    variable.alignment = std::max(variable.alignment, size);
    if (!variable.is_shared) {
      variable.data = memory_for(variable);
      fill(variable, size, trimmed(head.substr(std::min(head.size(), equals + 1))));
    }
    module_.variables[variable.name] = variable;
  }

  static void fill(const Variable& variable, size_t size, std::string_view values) {
    if (values.starts_with('{')) values = inside_of_brackets(values);
    size_t at = 0;
    for (const std::string_view value : split(values)) {
      const uint64_t bits = number_of(value);
      if (at + size <= variable.bytes) std::memcpy(variable.data + at, &bits, size);
      at += size;
    }
  }

  Module& module_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Module::Module(std::string source) : text(without_comments(source)) { Parser(*this).run(); }

const Program& Kernel::program() {
  if (!program_) program_ = std::make_unique<Program>(decoded(*this));
  return *program_;
}

}  // namespace bs::emulator

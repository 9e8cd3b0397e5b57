#include <bs/tests/emulator/text.h>

#include <cctype>
#include <cstdlib>

namespace bs::emulator {

namespace {

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_space(text[end])) ++end;
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t from = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : by;
    if (c == '{' || c == '[' || c == '(') ++depth;
    if (c == '}' || c == ']' || c == ')') --depth;
    if (i < text.size() && (c != by || depth > 0)) continue;
    const std::string_view part = trimmed(text.substr(from, i - from));
    if (!part.empty()) parts.push_back(part);
    from = i + 1;
  }
  return parts;
}

std::string_view inside_of_brackets(std::string_view text) {
  text = trimmed(text);
  return text.size() < 2 ? text : trimmed(text.substr(1, text.size() - 2));
}

uint64_t number_of(std::string_view text) {
  std::string digits(trimmed(text));
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const bool is_float = digits.size() > 2 && digits[0] == '0' &&
                        std::string_view("fFdD").find(digits[1]) != std::string_view::npos;
  const uint64_t bits = is_float ? std::strtoull(digits.c_str() + 2, nullptr, 16)
                                 : std::strtoull(digits.c_str(), nullptr, 0);
  return negative ? 0 - bits : bits;
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

std::string without_comments(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.size(), text.find('\n', i));
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = text.find("*/", i);
      i = end == std::string_view::npos ? text.size() : end + 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

size_t size_of_type(std::string_view type) {
  if (type == "pred") return 1;
  return static_cast<size_t>(std::atoi(std::string(type.substr(1)).c_str())) / 8;
}

Declared declared(std::string_view text) {
  const size_t bracket = std::min(text.size(), text.find('['));
  Declared out{std::string(trimmed(text.substr(0, bracket))), 1};
  for (size_t i = bracket; i < text.size(); ++i)
    if (text[i] == '[') out.elements *= static_cast<size_t>(number_of(text.substr(i + 1)));
  return out;
}

}  // namespace bs::emulator

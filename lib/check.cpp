#include <bs/lib/check.h>

#include <charconv>

namespace bs {

std::string FormatArgument::print_double(double value) {
  char buffer[32];  // not printf, whose decimal point is a comma where the program's locale says so
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, 6);
  return {buffer, end.ptr};
}

std::string format(std::string_view pattern, std::initializer_list<FormatArgument> arguments) {
  std::string text;
  auto next = arguments.begin();
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i, 2) == "{}" && next != arguments.end()) {
      text += (next++)->text();
      ++i;
    } else {
      text += pattern[i];
    }
  }
  return text;
}

}  // namespace bs

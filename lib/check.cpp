#include <bs/lib/check.h>

#include <cstdio>

namespace bs {

std::string FormatArgument::print_double(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
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

#pragma once
/** @file Wishes that are said by variables of the environment. */
#include <cstdlib>
#include <string_view>

namespace bs {

/** @brief Whether a variable wishes for what it names: it is set, neither to 0 nor to nothing. */
inline bool is_wished(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace bs

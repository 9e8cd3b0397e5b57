#pragma once
/** @file Switches in the environment. */
#include <cstdlib>
#include <string_view>

namespace bs {

/** @brief Whether a switch is on: its variable is set, and is neither 0 nor empty. */
inline bool is_wished(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

}  // namespace bs

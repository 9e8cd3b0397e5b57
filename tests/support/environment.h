#pragma once
/** @file Variables of the environment, for as long as a test wants them. */
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bs::test {

/** @brief Sets variables, and puts back what they were. */
class Environment {
 public:
  Environment(const char* name, const std::string& value) { set(name, value); }
  ~Environment() {
    for (auto it = before_.rbegin(); it != before_.rend(); ++it) {
      const auto& [name, value] = *it;
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const char* name, const std::string& value) {
    const char* const now = std::getenv(name);
    before_.emplace_back(name, now ? std::optional<std::string>(now) : std::nullopt);
    ::setenv(name, value.c_str(), 1);
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace bs::test

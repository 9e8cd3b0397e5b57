#pragma once
/** @file Variables of the environment, for as long as a test wants them. */
#include <cstdlib>
#include <string>

namespace bs::test {

/** @brief Sets a variable, and puts back what it was. */
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) {
      was_set_ = true;
      before_ = before;
    }
    setenv(name, value, 1);
  }
  ~Environment() { was_set_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  bool was_set_ = false;
  std::string before_;
};

}  // namespace bs::test

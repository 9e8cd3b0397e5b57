#pragma once
/** @file A folder of a test's own, gone when the test is. */
#include <string>
#include <string_view>

namespace bs::test {

/** @brief A new empty folder under the system's temporary one. */
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  /** @brief Path of `name` in the folder. */
  std::string operator/(std::string_view name) const;
  /** @brief Number of files in the folder. */
  int files() const;

 private:
  std::string folder_;
};

void write_file(const std::string& path, std::string_view content);
std::string read_file(const std::string& path);

}  // namespace bs::test

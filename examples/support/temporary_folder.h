#pragma once
/** @file A folder for a program that tests itself. */
#include <bs/lib/check.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace bs::example {

/** @brief A folder that is gone with its owner. */
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = std::filesystem::temp_directory_path() / "bs_smoke_XXXXXX";
    if (mkdtemp(path.data()) == nullptr) BS_THROW(IoError, "{}: cannot be made", path);
    path_ = path;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace bs::example

#include <bs/lib/check.h>
#include <bs/tests/support/scratch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace bs::test {

Scratch::Scratch() {
  std::string pattern = (std::filesystem::temp_directory_path() / "bs-test-XXXXXX").string();
  BS_CHECK(::mkdtemp(pattern.data()), "scratch: cannot make {}", pattern);
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Scratch::operator/(std::string_view name) const {
  return folder_ + "/" + std::string(name);
}

int Scratch::files() const {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<int>(std::distance(Entries(folder_), Entries()));
}

void write_file(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  BS_CHECK(out.good(), "scratch: cannot write {}", path);
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  BS_CHECK(in.good(), "scratch: cannot read {}", path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace bs::test

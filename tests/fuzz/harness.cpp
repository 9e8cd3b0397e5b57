#include <bs/tests/fuzz/harness.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace bs::fuzz {
namespace {

const Harness* first = nullptr;

/// A folder of this process, gone when it ends in order.
struct Folder {
  std::string path;
  pid_t owner = ::getpid();

  Folder() {
    path = std::filesystem::is_directory("/dev/shm") ? "/dev/shm/bs_fuzz_XXXXXX"
                                                     : "/tmp/bs_fuzz_XXXXXX";
    require(::mkdtemp(path.data()) != nullptr, "a folder for the inputs");
  }
  ~Folder() {
    std::error_code ignored;
    if (::getpid() == owner) std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

Harness::Harness(const char* called, void (*body)(std::string_view)) : name(called), run(body) {
  next = std::exchange(first, this);
}

const Harness* harnesses() { return first; }

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "fuzz: not so: %s\n", what);
  std::abort();
}

std::string path_of(const std::string& name) {
  static const Folder folder;
  return folder.path + "/" + name;
}

std::string file_of(const char* name, std::string_view bytes) {
  std::string path = path_of(name);
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  require(file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(), "an input");
  require(std::fclose(file) == 0, "an input");
  return path;
}

void make_folder(const std::string& path) { std::filesystem::create_directories(path); }

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.numel() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace bs::fuzz

#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/sha256.h>
#include <bs/tests/fuzz/harness.h>

#include <cstdlib>
#include <filesystem>

using namespace bs;
using namespace bs::cuda;

namespace {

const std::string identity = "kernel 1\n";
const jit::Source source{.name = "k", .code = "code\n", .headers = {}};

/// The text with size and digest of the machine code in place of the first '@': chance would not
/// find a digest, and nothing behind it would be read.
std::string description(std::string_view text, std::string_view image) {
  std::string whole(text);
  if (const size_t at = whole.find('@'); at != std::string::npos)
    whole.replace(at, 1, std::to_string(image.size()) + " " + sha256(image));
  return whole;
}

/// The text of an entry and its machine code, parted by the first zero byte.
void read_kept(std::string_view bytes) {
  const std::string folder = "cache/" + jit::file_stem(source, identity);
  std::filesystem::create_directories(fuzz::path_of(folder));
  ::setenv("BS_CACHE_DIR", fuzz::path_of("cache").c_str(), 1);
  const size_t end = std::min(bytes.find('\0'), bytes.size());
  const std::string_view image = bytes.substr(std::min(end + 1, bytes.size()));
  fuzz::file_of((folder + "/kernel.txt").c_str(), description(bytes.substr(0, end), image));
  fuzz::file_of((folder + "/kernel.cu").c_str(), source.code);
  fuzz::file_of((folder + "/kernel.cubin").c_str(), image);
  const auto kept = jit::load_cached(source, identity);
  if (!kept) return;
  std::filesystem::remove_all(fuzz::path_of(folder));
  jit::store_cached(source, identity, *kept);
  const auto again = jit::load_cached(source, identity);
  fuzz::require(again && again->image == kept->image && again->log == kept->log &&
                    again->resources == kept->resources,
                "a kernel is what it was");
}

}  // namespace

BS_HARNESS(jit_cache) {
  read_kept(bytes);
  fuzz::takes([&] {
    for (const jit::Recorded& kernel : jit::read_recorded(fuzz::file_of("recorded", bytes), {}))
      fuzz::require(jit::is_kernel_name(kernel.source.name), "its name can be a file's");
  });
}

#include <bs/nn/data/manifest.h>

#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/lib/json.h>
#include <bs/lib/out_of_memory.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <string_view>

namespace bs::data {

namespace {
const std::string& member(const Json& line, const char* name) {
  const Json* value = line.find(name);
  if (value == nullptr) BS_THROW(IoError, "no member '{}'", name);
  return value->string();
}
}  // namespace

std::vector<ManifestEntry> read_manifest(const std::string& path) try {
  InputFile file(path);
  const std::string all = file.read_text(static_cast<size_t>(file.size()));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<ManifestEntry> entries;
  std::string_view left = all;
  for (int64_t number = 1; !left.empty(); ++number) {
    const std::string_view text = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), text.size() + 1));
    if (text.empty()) continue;
    try {
      const Json line = Json::parse(text);
      entries.push_back({(folder / member(line, "path")).string(), member(line, "text")});
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}:{}: {}", path, number, error.what());
    }
  }
  return entries;
} catch (const std::bad_alloc&) {
  out_of_own_memory("manifest", path);
}

}  // namespace bs::data

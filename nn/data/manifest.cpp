#include <bs/nn/data/manifest.h>

#include <bs/lib/check.h>
#include <bs/lib/json.h>

#include <filesystem>
#include <fstream>

namespace bs::data {

namespace {
const std::string& member(const Json& line, const char* name) {
  const Json* value = line.find(name);
  if (value == nullptr) BS_THROW(IoError, "no member '{}'", name);
  return value->string();
}
}  // namespace

std::vector<ManifestEntry> read_manifest(const std::string& path) {
  std::ifstream in(path);
  if (!in) BS_THROW(IoError, "{}: cannot be read", path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::vector<ManifestEntry> entries;
  std::string text;
  for (int64_t number = 1; std::getline(in, text); ++number) {
    if (text.empty()) continue;
    try {
      const Json line = Json::parse(text);
      entries.push_back({(folder / member(line, "path")).string(), member(line, "text")});
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}:{}: {}", path, number, error.what());
    }
  }
  return entries;
}

}  // namespace bs::data

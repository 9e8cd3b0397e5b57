#include <bs/examples/image_classifier/font_file.h>
#include <bs/examples/image_classifier/fonts.h>
#include <bs/examples/support/files.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace bs::example {
namespace {

constexpr int64_t held_out_every = 5;

/// Files of fonts by the folder they are in, in one order on every machine.
std::map<std::string, std::vector<std::string>> font_files(const std::string& folder) {
  std::map<std::string, std::vector<std::string>> families;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file() && (kind == ".ttf" || kind == ".otf"))
      families[entry.path().parent_path().string()].push_back(entry.path().string());
  }
  for (auto& [family, files] : families) std::sort(files.begin(), files.end());
  return families;
}

}  // namespace

ImageData read_fonts(const Options& options) {
  const auto families = font_files(options.data);
  if (static_cast<int64_t>(families.size()) < held_out_every)
    BS_THROW(UsageError, "--data {}: {} folders with fonts are too few, 5 are needed", options.data,
             families.size());
  ImageData data;
  data.train.size = data.held_out.size = options.size;
  int64_t number = 0;
  for (const auto& [family, files] : families) {
    Images& to = ++number % held_out_every == 0 ? data.held_out : data.train;
    for (const std::string& file : files) add_font(file, to);
  }
  if (data.train.count() == 0 || data.held_out.count() == 0)
    BS_THROW(UsageError, "--data {}: no font there has all letters and digits", options.data);
  for (const char* c = font_characters; *c != 0; ++c) data.names.emplace_back(1, *c);
  uint64_t hash = fnv1a(data.train.pixels.data(), data.train.pixels.size() * sizeof(float));
  hash = fnv1a(data.held_out.pixels.data(), data.held_out.pixels.size() * sizeof(float), hash);
  data.fingerprint = format("{} images, hash {}", data.train.count() + data.held_out.count(), hash);
  return data;
}

}  // namespace bs::example

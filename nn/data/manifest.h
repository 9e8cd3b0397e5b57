#pragma once
/** @file Lists of recordings with what is said in them. */
#include <string>
#include <vector>

namespace bs::data {

/** @brief One line of a manifest. */
struct ManifestEntry {
  std::string path;  ///< of the audio file
  std::string text;
};

/** @brief Reads JSON lines, `{"path": "a/b.ogg", "text": "what is said"}`; other members are
 *  ignored, and so are empty lines. A relative path counts from the manifest's folder.
 *  @throws IoError telling the line that is not such an object, or that the file cannot be read. */
std::vector<ManifestEntry> read_manifest(const std::string& path);

}  // namespace bs::data

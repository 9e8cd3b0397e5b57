#include <bs/nn/data/manifest.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(manifest) {
  const std::string path = fuzz::file_of("input", bytes);
  fuzz::takes([&] {
    for (const data::ManifestEntry& entry : data::read_manifest(path))
      fuzz::require(!entry.path.empty(), "an entry names a file");
  });
}

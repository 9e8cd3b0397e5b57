#include <bs/examples/image_classifier/font_file.h>
#include <bs/tests/fuzz/harness.h>
#include <sys/resource.h>

#include <algorithm>

using namespace bs;

/// What this process has had at most, in KiB.
static int64_t peak() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

BS_HARNESS(fonts) {
  constexpr int64_t characters = 36, heights = 3;
  const std::string path = fuzz::file_of("input", bytes);
  example::Images images{.size = 20, .pixels = {}, .classes = {}};
  const int64_t before = peak();
  fuzz::takes([&] { example::add_font(path, images); });
  fuzz::require(peak() - before < 256 << 10, "a glyph takes no more than its image");
  fuzz::require(images.count() % characters == 0 && images.count() <= heights * characters,
                "all characters at up to three heights");
  fuzz::require(
      static_cast<int64_t>(images.pixels.size()) == images.count() * images.size * images.size,
      "pixels of each image");
  fuzz::require(std::ranges::all_of(images.pixels, [](float x) { return x >= 0 && x <= 1; }),
                "ink");
}

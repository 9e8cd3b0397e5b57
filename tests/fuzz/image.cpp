#include <bs/interop/image.h>
#include <bs/tests/fuzz/harness.h>

using namespace bs;

BS_HARNESS(image) {
  const std::string path = fuzz::file_of("input", bytes);
  for (const int channels : {1, 3, 4}) {
    Tensor pixels;
    if (!fuzz::takes([&] { pixels = read_image(path, channels); })) continue;
    fuzz::require(pixels.dtype() == u8 && pixels.rank() == 3 && pixels.size(0) == channels,
                  "channels of rows of bytes");
    // The first and the last pixel are there.
    const auto last = [&](int axis) { return pixels.size(axis) - 1; };
    fuzz::require(pixels.select(0, 0).select(0, 0).select(0, 0).item() <= 255 &&
                      pixels.select(0, last(0)).select(0, last(1)).select(0, last(2)).item() <= 255,
                  "pixels");
  }
}

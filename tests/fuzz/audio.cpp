#include <bs/examples/rnnt_lstm/audio.h>
#include <bs/tests/fuzz/harness.h>

#include <algorithm>
#include <cmath>

using namespace bs;

BS_HARNESS(audio) {
  const std::string path = fuzz::file_of("input", bytes);
  fuzz::takes([&] {
    const std::vector<float> samples = example::read_audio(path, 16000);
    fuzz::require(samples.size() <= std::max(size_t{1} << 24, 256 * bytes.size()), "of its size");
    for (const float x : samples) fuzz::require(std::isfinite(x), "a sample is a number");
  });
}

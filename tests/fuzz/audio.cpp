#include <bs/examples/rnnt_lstm/audio.h>
#include <bs/tests/fuzz/harness.h>

#include <cmath>

using namespace bs;

BS_HARNESS(audio) {
  const std::string path = fuzz::file_of("input", bytes);
  fuzz::takes([&] {
    for (const float x : example::read_audio(path, 16000))
      fuzz::require(std::isfinite(x), "a sample is a number");
  });
}

/** @file Log-mel features against those of librosa, recorded by golden/record_features.py. */
#include <bs/nn/data/log_mel.h>
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <string>

using namespace bs;

namespace {

/// The signal of the script.
std::vector<float> signal(int64_t count) {
  std::vector<float> x;
  for (int64_t i = 0; i < count; ++i) {
    const auto n = static_cast<double>(i);
    x.push_back(static_cast<float>(0.3 * std::sin(0.05 * n) + 0.2 * std::sin(0.00002 * n * n) +
                                   0.1 * (static_cast<double>(i * 7919 % 1000) / 500 - 1)));
  }
  return x;
}

}  // namespace

TEST_CASE("log_mel equals librosa's") {
  std::ifstream in(BS_GOLDEN "/features.txt");
  REQUIRE(in);
  int cases = 0;
  for (std::string word; in >> word; ++cases) {
    REQUIRE(word == "case");
    data::LogMelOptions o;
    int64_t count = 0, frames = 0, mels = 0;
    std::string htk, shape;
    in >> count >> o.rate >> o.window >> o.hop >> o.mels >> o.low >> o.high >> htk >> shape >>
        o.preemphasis >> frames >> mels;
    o.scale = htk == "True" ? data::MelScale::htk : data::MelScale::slaney;
    o.shape = shape == "hann" ? data::Window::hann : data::Window::hamming;
    CAPTURE(cases);
    const data::Frames actual = data::log_mel(o, signal(count));
    REQUIRE(actual.count() == frames);
    REQUIRE(actual.width == mels);
    double worst = 0;
    for (const float value : actual.values) {
      double expected = 0;
      in >> expected;
      worst = std::max(worst, std::abs(static_cast<double>(value) - expected));
    }
    // Both compute in double; ours is stored in f32, whose steps at these values are 1e-6.
    CHECK(worst <= 2e-6);
  }
  CHECK(cases == 3);
}

#include <bs/lib/check.h>
#include <bs/nn/data/resample.h>
#include <bs/nn/data/speech_features.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace bs;
using data::Frames;

namespace {

constexpr double pi = std::numbers::pi;

std::vector<float> noise(size_t count, uint64_t seed) {
  data::Draws draws(seed, 0);
  std::vector<float> x(count);
  for (float& v : x) v = static_cast<float>(2 * draws.uniform() - 1);
  return x;
}

std::vector<float> sine(size_t count, double turns_a_sample) {
  std::vector<float> x(count);
  for (size_t i = 0; i < count; ++i)
    x[i] = static_cast<float>(std::sin(2 * pi * turns_a_sample * static_cast<double>(i)));
  return x;
}

/// Feeds the samples in pieces of uneven sizes.
template <class Extractor>
Frames in_pieces(Extractor& extractor, const std::vector<float>& samples) {
  Frames all;
  size_t at = 0;
  for (size_t piece = 0; at < samples.size(); ++piece) {
    const size_t size = std::min(samples.size() - at, piece * 137 % 1000);
    const Frames part = extractor.push(std::span(samples).subspan(at, size));
    all.width = part.width;
    all.values.insert(all.values.end(), part.values.begin(), part.values.end());
    at += size;
  }
  return all;
}

}  // namespace

TEST_CASE("fft: the definition") {
  for (const int64_t n : {2, 4, 8, 64, 512}) {
    data::RealFft fft(n);
    for (const int64_t given : {n, n - 1}) {
      std::vector<double> x;
      for (const float v : noise(static_cast<size_t>(given), 3))
        x.push_back(static_cast<double>(v));
      const auto spectrum = fft(x);
      REQUIRE(spectrum.size() == static_cast<size_t>(n / 2 + 1));
      for (size_t k = 0; k < spectrum.size(); ++k) {
        std::complex<double> expected = 0;
        for (size_t i = 0; i < x.size(); ++i)
          expected +=
              x[i] * std::polar(1.0, -2 * pi * static_cast<double>(k * i) / static_cast<double>(n));
        CHECK(std::abs(spectrum[k] - expected) <= 1e-12 * static_cast<double>(n));
      }
    }
  }
  CHECK_THROWS_WITH_AS(data::RealFft(12), "fft: 12 is no power of two from 2 on", Error);
  CHECK_THROWS_WITH_AS(data::RealFft(1), "fft: 1 is no power of two from 2 on", Error);
  data::RealFft fft(2);
  CHECK_THROWS_WITH_AS(fft(std::vector<double>(3)), "fft: 3 values for a size of 2", Error);
}

TEST_CASE("log_mel: frames of the pieces are those of the whole") {
  for (const double hop : {0.01, 0.04}) {  // the second leaves gaps between frames
    const data::LogMelOptions options{.rate = 8000, .hop = hop, .mels = 20, .dither = 0.01};
    const std::vector<float> samples = noise(12345, 1);
    const Frames whole = data::log_mel(options, samples);
    CHECK(whole.count() == (12345 - 200) / static_cast<int64_t>(8000 * hop) + 1);
    data::LogMel mel(options);
    CHECK(in_pieces(mel, samples).values == whole.values);
    mel.reset(options.seed);
    CHECK(in_pieces(mel, samples).values == whole.values);
    mel.reset(options.seed + 1);
    CHECK(in_pieces(mel, samples).values != whole.values);
  }
}

TEST_CASE("log_mel: short recordings, silence, and what it refuses") {
  const data::LogMelOptions options{.rate = 8000, .mels = 20};
  CHECK(data::log_mel(options, noise(0, 1)).count() == 0);
  CHECK(data::log_mel(options, noise(199, 1)).count() == 0);
  CHECK(data::log_mel(options, noise(200, 1)).count() == 1);
  for (const float v : data::log_mel(options, std::vector<float>(400)).values)
    CHECK(v == static_cast<float>(std::log(options.floor)));
  // A tone is loudest in the filter around it: of 20 filters up to 4 kHz the one at 1 kHz.
  const Frames tone = data::log_mel(options, sine(400, 1000.0 / 8000));
  const auto row = tone.row(1);
  const double mel =
      2595 * std::log10(1 + 1000.0 / 700) / (2595 * std::log10(1 + 4000.0 / 700)) * 21;
  CHECK(std::abs(static_cast<double>(std::max_element(row.begin(), row.end()) - row.begin()) + 1 -
                 mel) <= 0.5);
  CHECK_THROWS_WITH_AS(data::LogMel({.rate = 0}), "log_mel: 0 samples a second", Error);
  CHECK_THROWS_WITH_AS(data::LogMel({.rate = 8000, .high = 5000}),
                       "log_mel: 80 mels from 0 to 5000 Hz at 8000 Hz", Error);
  CHECK_THROWS_WITH_AS(data::LogMel({.window = 0}),
                       "log_mel: a window of 0 s, a hop of 0.01 s at 16000 Hz", Error);
  CHECK_THROWS_AS(data::LogMel({.rate = 8000, .mels = 200}), Error);
}

TEST_CASE("resample: tones stay tones, a constant stays itself") {
  const std::vector<float> constant(500, 0.5F);
  const auto same = data::resample(constant, 3, 2);
  CHECK(same.size() == 334);
  CHECK(same[160] == doctest::Approx(0.5).epsilon(1e-6));
  struct Rates {
    int64_t from, to;
  };
  for (const auto [from, to] : {Rates{22050, 16000}, {8000, 16000}, {16000, 8000}, {100, 90}}) {
    const int64_t rate = from;
    CAPTURE(rate);
    const double turns = 0.1 * static_cast<double>(std::min(from, to));  // a second
    const auto x = sine(3000, turns / static_cast<double>(from));
    const auto y = data::resample(x, from, to);
    CHECK(static_cast<int64_t>(y.size()) == (3000 * to + from - 1) / from);
    double worst = 0;
    for (size_t i = 200; i + 200 < y.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) -
                                       std::sin(2 * pi * turns * static_cast<double>(i) /
                                                static_cast<double>(to))));
    CHECK(worst < 1e-3);  // 60 dB below
  }
  // Above half the new rate nothing is left.
  const auto gone = data::resample(sine(3000, 0.4), 16000, 8000);
  for (size_t i = 100; i + 100 < gone.size(); ++i) CHECK(std::abs(gone[i]) < 1e-3F);
  CHECK(data::resample({}, 2, 3).empty());
  CHECK(data::resample(constant, 7, 7) == constant);
  CHECK(data::change_speed(constant, 1.25).size() == 400);
  CHECK_THROWS_WITH_AS(data::resample(constant, 0, 3), "resample: from 0 to 3 samples a second",
                       Error);
  CHECK_THROWS_WITH_AS(data::change_speed(constant, 0), "change_speed: a factor of 0", Error);
}

TEST_CASE("speech_features: stacks, statistics, and the same in pieces") {
  Frames frames{.width = 2};
  for (int i = 0; i < 14; ++i) frames.values.push_back(static_cast<float>(i));
  CHECK(data::stack_frames(frames, 3, 3).values ==
        std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(data::stack_frames(frames, 2, 4).values == std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(data::stack_frames(frames, 8, 1).count() == 0);
  const auto statistics = data::statistics_of(std::vector{frames, frames});
  CHECK(statistics.mean == std::vector<float>{6, 7});
  CHECK(statistics.deviation[0] == doctest::Approx(4));

  const std::vector<float> samples = noise(9000, 2);
  const data::LogMelOptions mel{.rate = 8000, .mels = 16};
  const auto of_noise = data::statistics_of(std::vector{data::log_mel(mel, samples)});
  for (const int stride : {1, 3, 5}) {
    data::SpeechFeatures features({.mel = mel, .stack = 3, .stride = stride}, of_noise);
    const Frames whole = features.whole(samples);
    CHECK(whole.width == features.width());
    CHECK(whole.width == 48);
    CHECK(in_pieces(features, samples).values == whole.values);
    double sum = 0;
    for (const float v : whole.values) sum += static_cast<double>(v);
    CHECK(std::abs(sum / static_cast<double>(whole.values.size())) < 0.05);
  }
  CHECK_THROWS_WITH_AS(data::statistics_of({}), "statistics_of: no frame in 0 recordings", Error);
  CHECK_THROWS_WITH_AS(data::SpeechFeatures({.mel = mel}, data::FeatureStatistics{{1}, {1}}),
                       "speech_features: statistics of 1 features for 16 mels", Error);
}

TEST_CASE("spec_augment: masks of bounded size, the same for the same draws") {
  const auto masked = [](uint64_t key) {
    Frames frames{.width = 40};
    frames.values.assign(40 * 200, 1.0F);
    data::Draws draws(key, 5);
    data::spec_augment(
        frames, {.frequency_masks = 2, .frequency_width = 10, .time_masks = 3, .time_share = 0.05},
        draws);
    return frames;
  };
  bool some = false;
  for (uint64_t key = 0; key < 50; ++key) {
    const Frames frames = masked(key);
    CHECK(frames.values == masked(key).values);
    int64_t rows = 0, columns = 0;
    for (int64_t i = 0; i < 200; ++i) {
      const auto row = frames.row(i);
      rows += std::count(row.begin(), row.end(), 0.0F) == 40;
    }
    for (size_t k = 0; k < 40; ++k) {
      int64_t zeros = 0;
      for (int64_t i = 0; i < 200; ++i) zeros += frames.row(i)[k] == 0;
      columns += zeros == 200;
    }
    CHECK(rows <= 30);
    CHECK(columns <= 20);
    some = some || (rows > 0 && columns > 0);
  }
  CHECK(some);
  Frames nothing{.width = 4};
  data::Draws draws(1, 1);
  data::spec_augment(nothing, {}, draws);
  CHECK(nothing.count() == 0);
}

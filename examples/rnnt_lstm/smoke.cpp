#include <bs/examples/rnnt_lstm/smoke.h>
#include <bs/examples/rnnt_lstm/stream.h>
#include <bs/examples/support/training.h>

#include <cmath>
#include <cstdio>
#include <numbers>

namespace bs::example {
namespace {

constexpr std::string_view letters = "abcdef";

/// A tone of its own for each letter, with a gap and a little noise, of varying lengths.
std::vector<float> say(const std::string& text, int64_t rate, data::Draws& draws) {
  std::vector<float> samples;
  const auto add = [&](double seconds, double hertz, double loudness) {
    const auto count = static_cast<size_t>(seconds * static_cast<double>(rate));
    for (size_t i = 0; i < count; ++i) {
      const double t = static_cast<double>(i) / static_cast<double>(rate);
      const double noise = 0.01 * (draws.uniform() - 0.5);
      samples.push_back(
          static_cast<float>(loudness * std::sin(2 * std::numbers::pi * hertz * t) + noise));
    }
  };
  add(0.05, 0, 0);
  for (const char letter : text) {
    add(0.06 + 0.06 * draws.uniform(), 400.0 * std::pow(1.4, letter - 'a'), 0.5);
    add(0.04, 0, 0);
  }
  return samples;
}

std::vector<Recording> pairs(int count, int64_t rate) {
  std::vector<Recording> all;
  for (int i = 0; i < count; ++i) {
    data::Draws draws(1, static_cast<uint64_t>(i));
    std::string text;
    for (int64_t k = 1 + draws.below(4); k > 0; --k)
      text += letters[static_cast<size_t>(draws.below(static_cast<int64_t>(letters.size())))];
    all.push_back({std::to_string(i), say(text, rate, draws), text});
  }
  return all;
}

}  // namespace

void smoke(const Options& given) {
  Options options;
  options.device = given.device;
  options.dtype = given.dtype;
  options.encoder = options.prediction = options.joint = 48;
  options.mels = 20;
  options.batch = 8;
  options.steps = 240;
  options.learning_rate = 1e-2;
  options.warmup = 20;
  options.hold = 120;
  options.ema = 0.9;
  options.dropout = 0.05;
  options.held_out = 0.2;
  const Corpus corpus(pairs(160, options.rate), options);

  const auto trainer = train_and_resume<Trainer>(options, corpus);
  const Evaluation held_out = trainer->evaluate(*corpus.held_out());
  const double errors = held_out.characters.rate(), guess = corpus.guess_errors().rate();
  std::printf("held out: %.1f %% of the letters wrong, guess %.1f %%\n", 100 * errors, 100 * guess);
  BS_CHECK(errors < 0.3 * guess, "smoke: learnt too little: {} of the letters wrong, guess {}",
           errors, guess);

  trainer->recogniser().eval();
  for (size_t i = 0; i < 5; ++i) {
    const auto& samples = (*corpus.held_out())[i].samples;
    const std::string at_once = transcribe(trainer->recogniser(), samples, 0);
    const std::string pieces =
        transcribe_pieces(trainer->recogniser(), samples, 777, [](const std::string&) {});
    BS_CHECK(at_once == pieces, "smoke: '{}' at once, but '{}' in pieces", at_once, pieces);
  }
  std::printf("in pieces: the same texts\n");
}

}  // namespace bs::example

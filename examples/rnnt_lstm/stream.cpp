#include <bs/examples/rnnt_lstm/stream.h>
#include <bs/examples/support/interrupt.h>
#include <bs/examples/support/program.h>
#include <bs/examples/support/resume.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace bs::example {

std::string transcribe_pieces(const Recogniser& recogniser, std::span<const float> samples,
                              int64_t piece,
                              const std::function<void(const std::string&)>& on_text) {
  decode::RNNTScorer scorer(recogniser.model);
  decode::GreedyDecoder decoder(scorer, {.max_symbols = 8});
  data::SpeechFeatures features = recogniser.features();
  for (size_t at = 0; at < samples.size() && !interrupted();) {
    const size_t count = std::min(samples.size() - at, static_cast<size_t>(piece));
    const data::Frames frames = features.push(samples.subspan(at, count));
    at += count;
    if (frames.count() > 0) scorer.append(tensor_of(frames));
    if (at == samples.size()) scorer.finish();
    decoder.advance();
    on_text(recogniser.alphabet().decode(decoder.hypothesis().tokens));
  }
  return recogniser.alphabet().decode(decoder.hypothesis().tokens);
}

namespace {

/// Of a file that anybody may have made.
data::Alphabet alphabet_of(const nn::Checkpoint& checkpoint) {
  const auto found = checkpoint.metadata().find(alphabet_key);
  if (found == checkpoint.metadata().end())
    throw UsageError("--resume: the checkpoint is none of a recogniser: it has no alphabet");
  try {
    return data::Alphabet(found->second);
  } catch (const Error& error) {
    BS_THROW(UsageError, "--resume: the checkpoint is none of a recogniser: {}", error.what());
  }
}

}  // namespace

int stream(const Options& options, std::span<const float> samples) {
  const data::Alphabet alphabet = alphabet_of(*options.resume);
  Recogniser recogniser = make_model(options, [&] { return Recogniser(options, alphabet); });
  optim::Ema average(recogniser, options.ema);
  options.resume->restore({.model = &recogniser, .average = &average});
  const optim::AverageScope averages(average);
  recogniser.eval();
  const auto start = std::chrono::steady_clock::now();
  size_t shown = 0;
  const int64_t piece = options.rate / 5;
  transcribe_pieces(recogniser, samples, piece, [&](const std::string& text) {
    std::fputs(printable(text.substr(shown)).c_str(), stdout);
    std::fflush(stdout);
    shown = text.size();
  });
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double spoken = static_cast<double>(samples.size()) / static_cast<double>(options.rate);
  std::printf("\n");
  std::fprintf(stderr, "%.1f s of sound in %.2f s: %.0f times as fast as it was spoken\n", spoken,
               seconds, spoken / seconds);
  return interrupted() ? interrupted_status : 0;
}

}  // namespace bs::example

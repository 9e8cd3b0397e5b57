#include <bs/examples/rnnt_lstm/corpus.h>
#include <bs/examples/support/files.h>
#include <bs/examples/support/program.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <future>
#include <map>
#include <new>
#include <optional>
#include <thread>

namespace bs::example {
namespace {

constexpr float quietest_peak = 0.01F;  // -40 dB
constexpr double fastest_speech = 30;   // characters a second
constexpr int64_t least_frames = 8;     // of 10 ms: fewer are no word

std::vector<std::string> texts_of(const std::vector<Recording>& pairs) {
  std::vector<std::string> texts;
  texts.reserve(pairs.size());
  for (const Recording& pair : pairs) texts.push_back(pair.text);
  return texts;
}

}  // namespace

double seconds_of(const data::Utterances& utterances, int64_t rate) {
  double samples = 0;
  for (const data::Utterance& u : utterances) samples += static_cast<double>(u.samples.size());
  return samples / static_cast<double>(rate);
}

bool plausible(const Recording& pair, const Options& o, LeftOut& left_out) {
  const double seconds = static_cast<double>(pair.samples.size()) / static_cast<double>(o.rate);
  // The model sees a whole stack of frames, or nothing.
  const double least = std::max(static_cast<double>(least_frames) * o.hop,
                                static_cast<double>(o.stack - 1) * o.hop + o.window);
  const auto characters = static_cast<double>(data::characters_of(pair.text).size());
  float peak = 0;
  for (const float x : pair.samples) peak = std::max(peak, std::abs(x));
  if (characters == 0) {
    ++left_out.wordless;
  } else if (peak < quietest_peak || seconds < least) {
    ++left_out.silent;
  } else if (seconds > o.max_seconds) {
    ++left_out.too_long;
  } else if (characters > fastest_speech * seconds) {
    ++left_out.too_fast;
  } else {
    return true;
  }
  return false;
}

namespace {

/// The sound of every entry, read by as many threads as there are cores; nothing where it cannot
/// be.
std::vector<std::optional<std::vector<float>>> read_all(
    const std::vector<data::ManifestEntry>& entries, const AudioReader& read_audio) {
  std::vector<std::optional<std::vector<float>>> sounds(entries.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next++) < entries.size();) {
      try {
        sounds[i] = read_audio(entries[i].path);
      } catch (const Error& error) {  // stays empty
        std::fprintf(stderr, "left out: %s\n", printable(error.what()).c_str());
      } catch (const std::bad_alloc&) {  // what is there has more samples than memory takes
        std::fprintf(stderr, "left out: %s: the host has no memory for it\n",
                     printable(entries[i].path).c_str());
      }
    }
  };
  std::vector<std::future<void>> others;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
    others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return sounds;
}

}  // namespace

Corpus Corpus::read(const Options& options, const AudioReader& read_audio) {
  const std::vector<data::ManifestEntry> entries = data::read_manifest(options.data);
  auto sounds = read_all(entries, read_audio);
  std::vector<Recording> pairs;
  LeftOut left_out;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!sounds[i]) {
      ++left_out.unreadable;
      continue;
    }
    Recording pair{entries[i].path, std::move(*sounds[i]), entries[i].text};
    if (plausible(pair, options, left_out)) pairs.push_back(std::move(pair));
  }
  return {pairs, options, left_out};
}

Corpus::Corpus(const std::vector<Recording>& pairs, const Options& options, const LeftOut& left_out)
    : alphabet_(data::Alphabet::of(texts_of(pairs))), left_out_(left_out) {
  uint64_t hash = fnv1a(nullptr, 0);
  for (const Recording& pair : pairs) {
    const uint64_t of_text = fnv1a(pair.text.data(), pair.text.size());
    const bool held = data::Draws(of_text, 0).uniform() < options.held_out;
    (held ? held_out_ : train_)->push_back({pair.name, pair.samples, alphabet_.encode(pair.text)});
    const uint64_t facts[] = {of_text, pair.samples.size()};
    hash = fnv1a(facts, sizeof facts, hash);
  }
  fingerprint_ = format("{} pairs, hash {}", pairs.size(), hash);
  if (train_->empty() || held_out_->empty())
    BS_THROW(UsageError,
             "--data {}: {} recordings to learn and {} held out are left of {}; both are needed "
             "({} are silent, or shorter than --stack {} frames)",
             options.data, train_->size(), held_out_->size(),
             static_cast<int64_t>(pairs.size()) + left_out.all(), left_out.silent, options.stack);
  make_guess();
}

void Corpus::make_guess() {
  std::map<std::string, int64_t> counts;
  for (const data::Utterance& u : *train_) ++counts[text(u)];
  const int64_t most =
      std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; })->second;
  int64_t fewest = -1;
  for (const auto& [candidate, count] : counts) {
    if (count < most) continue;
    int64_t errors = 0;
    for (const data::Utterance& u : *train_)
      errors += decode::character_errors(text(u), candidate).count();
    if (fewest >= 0 && errors >= fewest) continue;
    fewest = errors;
    guess_ = candidate;
  }
  for (const data::Utterance& u : *held_out_)
    guess_errors_ += decode::character_errors(text(u), guess_);
}

}  // namespace bs::example

#pragma once
/** @file Recordings and texts of a run, looked over before they are trusted. */
#include <bs/examples/rnnt_lstm/options.h>
#include <bs/nn/data/alphabet.h>
#include <bs/nn/data/manifest.h>
#include <bs/nn/decode/error_rate.h>

#include <functional>

namespace bs::example {

/** @brief A recording and what is said in it. */
struct Recording {
  std::string name;
  std::vector<float> samples;
  std::string text;
};

/** @brief Why pairs were left out, and how many. */
struct LeftOut {
  int64_t unreadable = 0, silent = 0, too_long = 0, too_fast = 0, wordless = 0;
  int64_t all() const { return unreadable + silent + too_long + too_fast + wordless; }
};

/** @brief Whether a pair can be what it says: sound louder than -40 dB, no longer than asked for,
 *  and at most 30 characters a second, more than anybody speaks; else counts why not. */
bool plausible(const Recording& pair, const Options& options, LeftOut& left_out);

/** @brief Samples of a file. @throws IoError when it cannot be read. */
using AudioReader = std::function<std::vector<float>(const std::string& path)>;

/** @brief What is learnt, and texts that are only measured. One text is never on both sides. */
class Corpus {
 public:
  /** @brief Splits the pairs by a hash of their texts. @throws UsageError where nothing is left. */
  Corpus(const std::vector<Recording>& pairs, const Options& options, const LeftOut& left_out = {});
  /** @brief Reads what a manifest lists, with several threads: `read_audio` must bear that. */
  static Corpus read(const Options& options, const AudioReader& read_audio);

  const std::shared_ptr<data::Utterances>& train() const { return train_; }
  const std::shared_ptr<data::Utterances>& held_out() const { return held_out_; }
  const data::Alphabet& alphabet() const { return alphabet_; }
  const LeftOut& left_out() const { return left_out_; }
  std::string text(const data::Utterance& utterance) const {
    return alphabet_.decode(utterance.tokens);
  }
  /** @brief The commonest text of the training part: what to guess without listening. Of equally
   *  common ones the one with the fewest errors on the training part. */
  const std::string& guess() const { return guess_; }
  /** @brief Errors of that guess on the held-out part. */
  const decode::Errors& guess_errors() const { return guess_errors_; }
  /** @brief Hash of all texts and lengths, by which a resumed run knows its data again. */
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  void make_guess();
  std::shared_ptr<data::Utterances> train_ = std::make_shared<data::Utterances>();
  std::shared_ptr<data::Utterances> held_out_ = std::make_shared<data::Utterances>();
  data::Alphabet alphabet_;
  LeftOut left_out_;
  std::string guess_, fingerprint_;
  decode::Errors guess_errors_;
};

/** @brief Seconds of all recordings. */
double seconds_of(const data::Utterances& utterances, int64_t rate);

}  // namespace bs::example

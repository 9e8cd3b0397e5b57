#pragma once
/** @file The model with everything that trains, measures and saves it. */
#include <bs/examples/rnnt_lstm/corpus.h>
#include <bs/examples/support/step_graph.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/decode/lattice_posterior.h>
#include <bs/nn/decode/rnnt_scorer.h>
#include <bs/nn/optim/lr_schedule.h>

namespace bs::example {

/** @brief A transducer, and what its features were normalised by: all that listening needs. */
class Recogniser : public nn::Module {
 public:
  Recogniser(const Options& options, const data::Alphabet& alphabet);
  /** @brief Sound to features, by the statistics in `mean` and `deviation`. */
  data::SpeechFeatures features() const;
  void set_statistics(const data::FeatureStatistics& statistics) const;
  const data::Alphabet& alphabet() const { return alphabet_; }

  nn::RNNT model;
  Variable mean, deviation;  ///< [mels]

 private:
  data::SpeechFeatureOptions options_;
  data::Alphabet alphabet_;
};

/** @brief Frames as a tensor [frames, width] on the host. */
Tensor tensor_of(const data::Frames& frames);

/** @brief What was said, and what was understood. */
struct Transcript {
  std::string reference, hypothesis;
};
struct Evaluation {
  decode::Errors characters, words;
  std::vector<Transcript> transcripts;
};

class Trainer {
 public:
  /** @brief Weights of options.seed, or the state that options.resume holds.
   *  @throws UsageError when that state belongs to other data, or to a later step than the run's
   *  last; Error when it does not fit. */
  Trainer(const Options& options, const Corpus& corpus);

  /** @brief Numbers of one step; their tensors are on the device and not waited for. */
  struct Step {
    int64_t number = 0;  ///< from 1
    double learning_rate = 0;
    double seconds = 0;  ///< of sound
    Tensor loss, gradient_norm;
  };
  Step step();
  int64_t steps_done() const { return optimizer_->steps(); }
  /** @brief Steps that were one launch of a graph. */
  int64_t replays() const { return graph_.replays(); }
  int64_t steps_an_epoch() const { return loader_.batches_an_epoch(); }
  /** @brief Transcribes up to `most` utterances with the averaged weights. */
  Evaluation evaluate(const data::Utterances& utterances, int64_t most = 1 << 30);
  /** @brief Throws Diverged where some held-out recordings give no finite loss, or no finite
   *  gradient: then it is the weights, and not a recording, that steps are skipped for. */
  void check();
  /** @brief Where the averaged model hears each character of an utterance's text. */
  decode::LatticePosterior alignment(const data::Utterance& utterance);
  /** @brief Writes everything there is to go on from. */
  void save(const std::string& path);

  const Recogniser& recogniser() const { return recogniser_; }
  const optim::Ema& average() const { return average_; }
  Recogniser& recogniser() { return recogniser_; }

 private:
  nn::TrainingState state();
  /// `rows`: as RNNTLossOptions has it.
  Variable loss_of(const data::SpeechBatch& batch, int64_t rows) const;
  /// One step: its loss, and the norm of its gradient.
  std::vector<Tensor> compute(const data::SpeechBatch& batch, int64_t rows);
  int64_t graph_rows(const data::SpeechBatch& batch) const;
  const Options& options_;
  const Corpus& corpus_;
  Recogniser recogniser_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Ema average_;
  optim::LearningRateSchedule schedule_;
  StepGraph graph_;  ///< of the optimiser and the average, which outlive it
  data::SpeechLoader loader_;
};

/** @brief The text of a recording. */
std::string transcribe(const Recogniser& recogniser, std::span<const float> samples, int beam);

/** @brief Name of the alphabet among a checkpoint's metadata. */
inline constexpr const char* alphabet_key = "alphabet";

}  // namespace bs::example

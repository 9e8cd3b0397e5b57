#pragma once
/** @file The model with everything that trains, measures, saves and samples it. */
#include <bs/examples/sparse_transformer/bigram.h>
#include <bs/examples/sparse_transformer/options.h>
#include <bs/examples/support/run_options.h>
#include <bs/examples/support/step_graph.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/transformer.h>

#include <functional>

namespace bs::example {

/** @brief The text of a run: what is learnt, and windows of its end that are only measured. */
class Text {
 public:
  /** @throws UsageError for a text too short for the context. */
  Text(const data::TextDataset& all, const Options& options);

  const data::TextDataset& train() const { return parts_.train; }
  const data::TextDataset& held_out() const { return parts_.held_out; }
  /** @brief Begins of the windows measured: spread evenly, at most 64 KiB in all. */
  const std::vector<int64_t>& starts() const { return starts_; }
  /** @brief Loss of the bigram model of the training part on those windows. */
  double bigram_loss() const { return bigram_loss_; }
  /** @brief Size and hash, by which a resumed run knows its text again. */
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  data::TextDataset::Split parts_;
  std::vector<int64_t> starts_;
  double bigram_loss_ = 0;
  std::string fingerprint_;
};

class Trainer {
 public:
  /** @brief Weights of options.seed, or the state that options.resume holds.
   *  @throws UsageError when that state belongs to another text, or to a later step than the run's
   *  last; Error when it does not fit. */
  Trainer(const Options& options, const Text& text);

  /** @brief Numbers of one step; their tensors are on the device and not waited for. */
  struct Step {
    int64_t number = 0;  ///< from 1
    double learning_rate = 0;
    Tensor loss, gradient_norm;
  };
  Step step();
  int64_t steps_done() const { return optimizer_.steps(); }
  /** @brief Mean loss over the held-out windows. */
  double held_out_loss();
  /** @brief Throws Diverged where that is not finite. */
  void check() { check_finite("held-out loss", held_out_loss(), steps_done()); }
  /** @brief Writes everything there is to go on from. */
  void save(const std::string& path);
  /** @brief Bytes that follow the prompt, each given to `on_byte` as it is made. */
  void sample(const std::function<void(char)>& on_byte);

  const nn::SparseTransformer& model() const { return model_; }

 private:
  nn::TrainingState state();
  /// One step: its loss, and the norm of its gradient.
  std::vector<Tensor> compute(const data::Batch& batch);
  const Options& options_;
  const Text& text_;
  nn::SparseTransformer model_;
  optim::AdamW optimizer_;
  optim::LearningRateSchedule schedule_;
  data::Loader loader_;
  StepGraph graph_;  ///< of the optimiser, which outlives it
};

}  // namespace bs::example

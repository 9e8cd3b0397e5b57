#pragma once
/** @file The network with everything that trains, measures and saves it. */
#include <bs/examples/image_classifier/images.h>
#include <bs/examples/image_classifier/layout_pruning.h>
#include <bs/examples/image_classifier/pruning.h>
#include <bs/examples/support/step_graph.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/optim/adamw.h>
#include <bs/nn/optim/lr_schedule.h>

namespace bs::example {

/** @brief How well images are told apart. */
struct Score {
  double accuracy = 0;             ///< from 0 to 1
  double loss = 0;                 ///< mean, natural
  std::vector<int64_t> confusion;  ///< [true class, class said]
};

/** @brief Of a linear model of the pixels, trained on the same images until it gains no more. */
Score linear_score(const ImageData& data, uint64_t seed);

class Trainer {
 public:
  /** @throws UsageError when the run to resume was of other images. */
  Trainer(const Options& options, const ImageData& data);

  /** @brief Numbers of one step; their tensors are on the device and not waited for. */
  struct Step {
    int64_t number = 0;  ///< from 1
    double learning_rate = 0, density = 1;
    Tensor loss, gradient_norm;
  };
  Step step();
  int64_t steps_done() const { return optimizer_->steps(); }
  /** @brief On all held-out images, with running statistics. */
  Score held_out();
  /** @brief Throws Diverged where the loss on these is not finite. */
  void check() { check_finite("held-out loss", held_out().loss, steps_done()); }
  /** @brief Writes everything there is to go on from. */
  void save(const std::string& path);

  const ResNet& model() const { return model_; }
  const PruningSchedule& pruning() const { return schedule_of_pruning_; }
  double density() const { return layouts_.applies() ? layouts_.density() : pruning_.density(); }

 private:
  nn::TrainingState state();
  std::unique_ptr<optim::AdamW> new_optimizer() const;
  void change_blocks(int64_t done);
  /// One step: its loss, and the norm of its gradient.
  std::vector<Tensor> compute(const Tensor& images, const Tensor& classes);
  const Options& options_;
  const ImageData& data_;
  ResNet model_;
  BlockPruning pruning_;
  LayoutPruning layouts_;
  PruningSchedule schedule_of_pruning_;
  std::unique_ptr<optim::AdamW> optimizer_;  ///< made anew for each change of layouts
  optim::LearningRateSchedule schedule_;
  StepGraph graph_;  ///< of the optimiser, which outlives it
};

}  // namespace bs::example

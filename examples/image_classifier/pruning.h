#pragma once
/** @file Pruning while training: blocks of 8 x 8 channels of dense weights go, smallest first.
 * Those of block-sparse weights do so in layout_pruning.h. */
#include <bs/examples/image_classifier/model.h>

namespace bs::example {

/** @brief When which share of the blocks is left: 1, .5, .25, .1. */
struct PruningSchedule {
  int64_t steps = 0;  ///< of the whole run
  bool prune = true;

  static constexpr double densities[] = {1, 0.5, 0.25, 0.1};
  /** @brief The stage of a step, 0 to 3: the first takes half of the run, the others share the
   * rest. */
  int stage(int64_t step) const;
  /** @brief Whether it is the last step of its stage. */
  bool ends(int64_t step) const { return stage(step) != stage(step + 1) || step + 1 == steps; }
};

/** @brief The weights of all 3 x 3 convolutions behind the first, cut into blocks of 8 x 8 channels
 *  at one place of the filter. */
class BlockPruning {
 public:
  explicit BlockPruning(const ResNet& model);
  /** @brief Keeps the largest blocks by their norm, a share `density` of each weight's. */
  void prune(double density);
  /** @brief Sets blocks that are gone to zero again, after a step. Which they are is remembered by
   *  the weights themselves, so that a checkpoint needs no more. */
  void find();
  void apply() const;
  /** @brief Share of the blocks that is left. */
  double density() const;

 private:
  std::vector<Variable> weights_;
  std::vector<Tensor> masks_;  ///< of the weights' shape and dtype, 1 and 0; undefined: all kept
};

}  // namespace bs::example

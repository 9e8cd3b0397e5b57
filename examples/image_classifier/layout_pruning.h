#pragma once
/** @file The layouts of block-sparse weights while they are trained: blocks go, and others grow. */
#include <bs/examples/image_classifier/model.h>

#include <map>
#include <string>
#include <vector>

namespace bs::example {

/** @brief The layouts of all 3 x 3 convolutions of a sparse model. Of another there are none. */
class LayoutPruning {
 public:
  /** Parameters whose layouts changed, for the optimiser's state. */
  using Changes = std::map<std::string, optim::LayoutChange>;

  explicit LayoutPruning(const ResNet& model);
  bool applies() const { return !weights_.empty(); }
  /** @brief Keeps the largest blocks by their norm, a share `density` of each weight's places. */
  Changes prune(double density);
  /** @brief Exchanges a share of each weight's blocks: the smallest go, and as many grow at places
   *  drawn at random, as zeros (Mocanu et al., 2018). */
  Changes regrow(double share, uint64_t seed);
  /** @brief Share of the places that have a block. */
  double density() const;

  /** @brief The layouts as text, by what a checkpoint calls them. */
  std::map<std::string, std::string> texts() const;
  /** @brief Takes layouts from there, before weights are restored.
   *  @throws Error for text that does not fit */
  void restore(const std::map<std::string, std::string>& texts);

 private:
  struct Weight {
    std::string name;  ///< of the parameter
    nn::BlockSparseConv2d* conv;
  };
  std::vector<Weight> weights_;
};

}  // namespace bs::example

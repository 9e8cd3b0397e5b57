#pragma once
/** @file Gradient descent over the parameters of a module; see kernels/sgd.h for the formula. */
#include <bs/kernels/sgd.h>
#include <bs/nn/optim/optimizer.h>

namespace bs::optim {

/** @brief Parameters that share options. */
struct SgdGroup {
  std::vector<nn::NamedVariable> parameters;
  SgdOptions options;
};
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
std::vector<SgdGroup> decay_groups(const nn::Module& module, const SgdOptions& options);

/** @brief Gradient descent with momentum, one launch a group and dtype. */
class Sgd : public Optimizer {
 public:
  explicit Sgd(const std::vector<SgdGroup>& groups);
  /** @brief All parameters that are not frozen, as one group. */
  explicit Sgd(const nn::Module& module, const SgdOptions& options = {});

  /** @brief Two groups of a module, as the free function makes them; but `{.weight_decay = .1}`
   *  needs no name of its type here. */
  static std::vector<SgdGroup> decay_groups(const nn::Module& module, const SgdOptions& options) {
    return optim::decay_groups(module, options);
  }

  std::vector<NamedTensor> state() const override;

 private:
  struct Entry {
    nn::NamedVariable parameter;
    Tensor momentum, master;
  };
  struct Group {
    std::vector<Entry> entries;
    SgdOptions options;
  };
  std::vector<double*> rates() override;
  void apply(int64_t number, const GradientClip& clip) override;
  std::vector<Group> groups_;
};

}  // namespace bs::optim

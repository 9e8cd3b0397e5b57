#pragma once
/** @file AdamW over the parameters of a module; see kernels/adamw.h for the formula. */
#include <bs/kernels/adamw.h>
#include <bs/nn/optim/optimizer.h>

namespace bs::optim {

/** @brief Parameters that share options. */
struct AdamWGroup {
  std::vector<nn::NamedVariable> parameters;
  AdamWOptions options;
};
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
std::vector<AdamWGroup> decay_groups(const nn::Module& module, const AdamWOptions& options);

/** @brief Adam with decoupled weight decay, one launch a group and dtype. */
class AdamW : public Optimizer {
 public:
  explicit AdamW(const std::vector<AdamWGroup>& groups);
  /** @brief All parameters as one group. */
  explicit AdamW(const nn::Module& module, const AdamWOptions& options = {});

  void set_learning_rate(double rate) override;
  std::vector<NamedTensor> state() const override;

 private:
  struct Entry {
    nn::NamedVariable parameter;
    Tensor first_moment, second_moment, master;
  };
  struct Group {
    std::vector<Entry> entries;
    AdamWOptions options;
  };
  void apply(int64_t number, const GradientClip& clip) override;
  std::vector<Group> groups_;
};

}  // namespace bs::optim

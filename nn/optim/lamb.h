#pragma once
/** @file LAMB over the parameters of a module; see kernels/lamb.h for the formula. */
#include <bs/kernels/lamb.h>
#include <bs/nn/optim/optimizer.h>

namespace bs::optim {

/** @brief Parameters that share options. */
struct LambGroup {
  std::vector<nn::NamedVariable> parameters;
  LambOptions options;
};
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
std::vector<LambGroup> decay_groups(const nn::Module& module, const LambOptions& options);

/** @brief Adam whose step is as long as each tensor deserves: for large batches. */
class Lamb : public Optimizer {
 public:
  explicit Lamb(const std::vector<LambGroup>& groups);
  /** @brief All parameters as one group. */
  explicit Lamb(const nn::Module& module, const LambOptions& options = {});

  void set_learning_rate(double rate) override;
  std::vector<NamedTensor> state() const override;

 private:
  struct Entry {
    nn::NamedVariable parameter;
    Tensor first_moment, second_moment, master;
  };
  struct Group {
    std::vector<Entry> entries;
    LambOptions options;
  };
  void apply(int64_t number, const GradientClip& clip) override;
  std::vector<Group> groups_;
};

}  // namespace bs::optim

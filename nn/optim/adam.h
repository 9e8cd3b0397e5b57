#pragma once
/** @file Adam over the parameters of a module; see kernels/adam.h for the formula. */
#include <bs/kernels/adam.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using AdamGroup = OptimizerGroup<AdamOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<AdamGroup> decay_groups(const nn::Module& module, const AdamOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in adam.cpp.
extern template class GroupOptimizer<AdamOptions, AdamParameter, prepared_adam, adam_numbers>;

/** @brief Adam with decay added to the gradient, one launch a group and dtype. */
class Adam : public GroupOptimizer<AdamOptions, AdamParameter, prepared_adam, adam_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

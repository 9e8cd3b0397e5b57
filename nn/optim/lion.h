#pragma once
/** @file Lion over the parameters of a module; see kernels/lion.h for the formula. */
#include <bs/kernels/lion.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using LionGroup = OptimizerGroup<LionOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<LionGroup> decay_groups(const nn::Module& module, const LionOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in lion.cpp.
extern template class GroupOptimizer<LionOptions, LionParameter, prepared_lion, lion_numbers>;

/** @brief Steps of one length, by the sign of the momentum; one launch a group and dtype. */
class Lion : public GroupOptimizer<LionOptions, LionParameter, prepared_lion, lion_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

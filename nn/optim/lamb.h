#pragma once
/** @file LAMB over the parameters of a module; see kernels/lamb.h for the formula. */
#include <bs/kernels/lamb.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using LambGroup = OptimizerGroup<LambOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<LambGroup> decay_groups(const nn::Module& module, const LambOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in lamb.cpp.
extern template class GroupOptimizer<LambOptions, LambParameter, prepared_lamb, lamb_numbers>;

/** @brief Adam whose step is as long as each tensor deserves: for large batches. */
class Lamb : public GroupOptimizer<LambOptions, LambParameter, prepared_lamb, lamb_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

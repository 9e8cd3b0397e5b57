#pragma once
/** @file AdamW over the parameters of a module; see kernels/adamw.h for the formula. */
#include <bs/kernels/adamw.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using AdamWGroup = OptimizerGroup<AdamWOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<AdamWGroup> decay_groups(const nn::Module& module, const AdamWOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in adamw.cpp.
extern template class GroupOptimizer<AdamWOptions, AdamWParameter, prepared_adamw, adamw_numbers>;

/** @brief Adam with decoupled weight decay, one launch a group and dtype. */
class AdamW : public GroupOptimizer<AdamWOptions, AdamWParameter, prepared_adamw, adamw_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

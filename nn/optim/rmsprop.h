#pragma once
/** @file RMSprop over the parameters of a module; see kernels/rmsprop.h for the formula. */
#include <bs/kernels/rmsprop.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using RMSpropGroup = OptimizerGroup<RMSpropOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<RMSpropGroup> decay_groups(const nn::Module& module,
                                              const RMSpropOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in rmsprop.cpp.
extern template class GroupOptimizer<RMSpropOptions, RMSpropParameter, prepared_rmsprop,
                                     rmsprop_numbers>;

/** @brief Gradients over the root of their mean square, one launch a group and dtype. */
class RMSprop
    : public GroupOptimizer<RMSpropOptions, RMSpropParameter, prepared_rmsprop, rmsprop_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

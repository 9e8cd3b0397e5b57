#pragma once
/** @file Gradient descent over the parameters of a module; see kernels/sgd.h for the formula. */
#include <bs/kernels/sgd.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using SgdGroup = OptimizerGroup<SgdOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<SgdGroup> decay_groups(const nn::Module& module, const SgdOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in sgd.cpp.
extern template class GroupOptimizer<SgdOptions, SgdParameter, prepared_sgd, sgd_numbers>;

/** @brief Gradient descent with momentum, one launch a group and dtype. */
class Sgd : public GroupOptimizer<SgdOptions, SgdParameter, prepared_sgd, sgd_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

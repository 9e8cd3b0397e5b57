#pragma once
/** @file Adafactor over the parameters of a module; see kernels/adafactor.h for the formula. */
#include <bs/kernels/adafactor.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using AdafactorGroup = OptimizerGroup<AdafactorOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<AdafactorGroup> decay_groups(const nn::Module& module,
                                                const AdafactorOptions& options) {
  return groups_by_decay(module, options);
}

// Compiled once, in adafactor.cpp.
extern template class GroupOptimizer<AdafactorOptions, AdafactorParameter, prepared_adafactor,
                                     adafactor_numbers>;

/** @brief Adam with little memory: second moments by row and by column, no first moment. */
class Adafactor : public GroupOptimizer<AdafactorOptions, AdafactorParameter, prepared_adafactor,
                                        adafactor_numbers> {
 public:
  using GroupOptimizer::GroupOptimizer;
};

}  // namespace bs::optim

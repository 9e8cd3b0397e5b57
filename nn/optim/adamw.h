#pragma once
/** @file AdamW over the parameters of a module; see kernels/adamw.h for the formula. */
#include <bs/kernels/adamw.h>
#include <bs/nn/optim/moments.h>

namespace bs::optim {

using AdamWGroup = MomentGroup<AdamWOptions>;
/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
inline std::vector<AdamWGroup> decay_groups(const nn::Module& module, const AdamWOptions& options) {
  return moment_groups(module, options);
}

/** @brief Adam with decoupled weight decay, one launch a group and dtype. */
class AdamW : public MomentOptimizer<AdamWOptions, adamw, adamw_numbers> {
 public:
  using MomentOptimizer::MomentOptimizer;
};

}  // namespace bs::optim

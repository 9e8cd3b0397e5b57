#pragma once
/** @file Muon over the matrices of a module, AdamW over the rest; see kernels/muon.h for the
 *  formula. */
#include <bs/kernels/adamw.h>
#include <bs/kernels/muon.h>
#include <bs/nn/optim/groups.h>

namespace bs::optim {

using MuonGroup = OptimizerGroup<MuonOptions>;

/** @brief Steps that turn a matrix without stretching it. Biases, norms, tables of embeddings and
 *  the last layer are AdamW's: give them in `rest`. */
class Muon : public Optimizer {
 public:
  explicit Muon(const std::vector<MuonGroup>& matrices,
                const std::vector<OptimizerGroup<AdamWOptions>>& rest = {});
  /** @brief Parameters of rank 2 by Muon, all others by AdamW; frozen ones stay. */
  explicit Muon(const nn::Module& module, const MuonOptions& options = {},
                const AdamWOptions& rest = {});

  std::vector<NamedTensor> state() const override;

 private:
  std::vector<double*> rates() override;
  void apply(int64_t number, const GradientClip& clip) override;
  StateGroups<MuonOptions, MuonParameter, prepared_muon, muon_numbers> matrices_;
  StateGroups<AdamWOptions, AdamWParameter, prepared_adamw, adamw_numbers> rest_;
};

}  // namespace bs::optim

#include <bs/nn/optim/muon.h>

namespace bs::optim {

namespace {

std::vector<nn::NamedVariable> of_rank_two(const nn::Module& module, bool wanted) {
  std::vector<nn::NamedVariable> all = trainable(module);
  std::erase_if(all, [=](const auto& p) { return (p.variable.rank() == 2) != wanted; });
  return all;
}

}  // namespace

Muon::Muon(const std::vector<MuonGroup>& matrices,
           const std::vector<OptimizerGroup<AdamWOptions>>& rest) {
  for (const MuonGroup& group : matrices) {
    for (const nn::NamedVariable& p : group.parameters) {
      BS_CHECK(p.variable.rank() == 2, "muon: {} {} is no matrix", p.name, p.variable.shape());
      adopt(p);
    }
    matrices_.add(group);
  }
  for (const auto& group : rest) {
    for (const nn::NamedVariable& p : group.parameters) adopt(p);
    rest_.add(group);
  }
  begin();
}

Muon::Muon(const nn::Module& module, const MuonOptions& options, const AdamWOptions& rest)
    : Muon({MuonGroup{of_rank_two(module, true), options}},
           {OptimizerGroup<AdamWOptions>{of_rank_two(module, false), rest}}) {}

std::vector<NamedTensor> Muon::state() const {
  std::vector<NamedTensor> tensors;
  matrices_.append_state(tensors);
  rest_.append_state(tensors);
  return tensors;
}

std::vector<double*> Muon::rates() {
  std::vector<double*> all;
  matrices_.append_rates(all);
  rest_.append_rates(all);
  return all;
}

void Muon::apply(int64_t number, const GradientClip& clip) {
  std::vector<PreparedStep> steps;
  matrices_.prepare(number, clip, *this, steps);
  rest_.prepare(number, clip, *this, steps);
  for (const PreparedStep& step : steps) step();
}

}  // namespace bs::optim

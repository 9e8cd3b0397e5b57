#include <bs/nn/optim/sgd.h>

#include <bs/lib/recording.h>

namespace bs::optim {

std::vector<SgdGroup> decay_groups(const nn::Module& module, const SgdOptions& options) {
  DecaySplit split = split_for_decay(module);
  SgdOptions without_decay = options;
  without_decay.weight_decay = 0;
  return {{std::move(split.decayed), options}, {std::move(split.free), without_decay}};
}

Sgd::Sgd(const std::vector<SgdGroup>& groups) {
  for (const SgdGroup& given : groups) {
    sgd({}, given.options);  // an empty step: options are refused here, not later
    Group& group = groups_.emplace_back();
    group.options = given.options;
    for (const nn::NamedVariable& p : given.parameters) {
      adopt(p);
      const Tensor& value = p.variable.data();
      const bool has_momentum = given.options.momentum != 0;
      group.entries.push_back({p, has_momentum ? state_like(value) : Tensor(), master_copy(value)});
    }
  }
  begin();
}

Sgd::Sgd(const nn::Module& module, const SgdOptions& options)
    : Sgd({SgdGroup{trainable(module), options}}) {}

std::vector<double*> Sgd::rates() {
  std::vector<double*> all;
  for (Group& group : groups_) all.push_back(&group.options.learning_rate);
  return all;
}

std::vector<NamedTensor> Sgd::state() const {
  std::vector<NamedTensor> tensors;
  for (const Group& group : groups_)
    for (const Entry& e : group.entries) {
      if (e.momentum.defined()) tensors.push_back({e.parameter.name + ".momentum", e.momentum});
      if (e.master.defined()) tensors.push_back({e.parameter.name + ".master", e.master});
    }
  return tensors;
}

void Sgd::apply(int64_t, const GradientClip& clip) {
  for (const Group& group : groups_) {
    std::vector<SgdParameter> parameters;
    for (const Entry& e : group.entries) {
      const Variable& v = e.parameter.variable;
      parameters.push_back({v.data(), v.grad(), e.momentum, e.master});
    }
    Tensor rate;
    if (Recording* recording = Recording::current())
      rate = recording->live(
          1, [&group](std::span<double> to) { to[0] = group.options.learning_rate; });
    sgd(parameters, group.options, clip, rate);
  }
}

}  // namespace bs::optim

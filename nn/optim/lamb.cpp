#include <bs/nn/optim/lamb.h>

namespace bs::optim {

std::vector<LambGroup> decay_groups(const nn::Module& module, const LambOptions& options) {
  DecaySplit split = split_for_decay(module);
  LambOptions without_decay = options;
  without_decay.weight_decay = 0;
  return {{std::move(split.decayed), options}, {std::move(split.free), without_decay}};
}

Lamb::Lamb(const std::vector<LambGroup>& groups) {
  for (const LambGroup& given : groups) {
    Group& group = groups_.emplace_back();
    group.options = given.options;
    for (const nn::NamedVariable& p : given.parameters) {
      adopt(p);
      const Tensor& value = p.variable.data();
      group.entries.push_back({p, state_like(value), state_like(value), master_copy(value)});
    }
  }
}

Lamb::Lamb(const nn::Module& module, const LambOptions& options)
    : Lamb({LambGroup{module.named_parameters(), options}}) {}

void Lamb::set_learning_rate(double rate) {
  for (Group& group : groups_) group.options.learning_rate = rate;
}

std::vector<NamedTensor> Lamb::state() const {
  std::vector<NamedTensor> tensors;
  for (const Group& group : groups_)
    for (const Entry& e : group.entries) {
      tensors.push_back({e.parameter.name + ".first_moment", e.first_moment});
      tensors.push_back({e.parameter.name + ".second_moment", e.second_moment});
      if (e.master.defined()) tensors.push_back({e.parameter.name + ".master", e.master});
    }
  return tensors;
}

void Lamb::apply(int64_t number, const GradientClip& clip) {
  for (const Group& group : groups_) {
    std::vector<LambParameter> parameters;
    for (const Entry& e : group.entries) {
      const Variable& v = e.parameter.variable;
      parameters.push_back({v.data(), v.grad(), e.first_moment, e.second_moment, e.master});
    }
    lamb(parameters, number, group.options, clip);
  }
}

}  // namespace bs::optim

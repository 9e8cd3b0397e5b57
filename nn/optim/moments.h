#pragma once
/** @file Optimisers of Adam's kin over the parameters of a module. They have groups of parameters
 *  with options, two moments and, for 16 bits, an f32 copy of each parameter. */
#include <bs/kernels/moments.h>
#include <bs/lib/recording.h>
#include <bs/nn/optim/optimizer.h>

#include <algorithm>
#include <utility>

namespace bs::optim {

/** @brief Parameters that share options. */
template <class Options>
struct MomentGroup {
  std::vector<nn::NamedVariable> parameters;
  Options options;
};

/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
template <class Options>
std::vector<MomentGroup<Options>> moment_groups(const nn::Module& module, const Options& options) {
  DecaySplit split = split_for_decay(module);
  Options without_decay = options;
  without_decay.weight_decay = 0;
  return {{std::move(split.decayed), options}, {std::move(split.free), without_decay}};
}

/** @brief An optimiser whose step is `update(parameters, number, options, clip, numbers)` for each
 *  group. While a graph is recorded its replays take `numbers_of(number, options)`. */
template <class Options, auto update, auto numbers_of>
class MomentOptimizer : public Optimizer {
 public:
  explicit MomentOptimizer(const std::vector<MomentGroup<Options>>& groups) {
    for (const MomentGroup<Options>& given : groups) {
      update({}, 1, given.options, {}, {});  // an empty step: options are refused here, not later
      Group& group = groups_.emplace_back();
      group.options = given.options;
      for (const nn::NamedVariable& p : given.parameters) {
        adopt(p);
        const Tensor& value = p.variable.data();
        group.entries.push_back({p, state_like(value), state_like(value), master_copy(value)});
      }
    }
    begin();
  }
  /** @brief All parameters that are not frozen, as one group. */
  explicit MomentOptimizer(const nn::Module& module, const Options& options = {})
      : MomentOptimizer({MomentGroup<Options>{trainable(module), options}}) {}

  /** @brief Two groups of a module, as the free function makes them; but `{.weight_decay = .1}`
   *  needs no name of its type here. */
  static std::vector<MomentGroup<Options>> decay_groups(const nn::Module& module,
                                                        const Options& options) {
    return moment_groups(module, options);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> tensors;
    for (const Group& group : groups_)
      for (const Entry& e : group.entries) {
        tensors.push_back({e.parameter.name + ".first_moment", e.first_moment});
        tensors.push_back({e.parameter.name + ".second_moment", e.second_moment});
        if (e.master.defined()) tensors.push_back({e.parameter.name + ".master", e.master});
      }
    return tensors;
  }

 private:
  struct Entry {
    nn::NamedVariable parameter;
    Tensor first_moment, second_moment, master;
  };
  struct Group {
    std::vector<Entry> entries;
    Options options;
  };
  std::vector<double*> rates() override {
    std::vector<double*> all;
    for (Group& group : groups_) all.push_back(&group.options.learning_rate);
    return all;
  }
  void apply(int64_t number, const GradientClip& clip) override {
    for (const Group& group : groups_) {
      Tensor numbers;
      if (Recording* recording = Recording::current())
        numbers = recording->live(3, [this, &group](std::span<double> to) {
          std::ranges::copy(numbers_of(steps() + 1, group.options), to.begin());
        });
      std::vector<MomentParameter> parameters;
      for (const Entry& e : group.entries) {
        const Variable& v = e.parameter.variable;
        parameters.push_back({v.data(), v.grad(), e.first_moment, e.second_moment, e.master});
      }
      update(parameters, number, group.options, clip, numbers);
    }
  }
  std::vector<Group> groups_;
};

}  // namespace bs::optim

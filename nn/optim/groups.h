#pragma once
/** @file Optimisers over groups of parameters: each group has options of its own, each parameter
 *  its state and, for 16 bits, an f32 copy. */
#include <bs/kernels/moments.h>
#include <bs/lib/recording.h>
#include <bs/nn/optim/optimizer.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

namespace bs::optim {

/** @brief Parameters that share options. */
template <class Options>
struct OptimizerGroup {
  std::vector<nn::NamedVariable> parameters;
  Options options;
};

/** @brief Two groups: the parameters that decay by options.weight_decay, and those that do not; see
 *  DecaySplit. */
template <class Options>
std::vector<OptimizerGroup<Options>> groups_by_decay(const nn::Module& module,
                                                     const Options& options) {
  DecaySplit split = split_for_decay(module);
  Options without_decay = options;
  without_decay.weight_decay = 0;
  return {{std::move(split.decayed), options}, {std::move(split.free), without_decay}};
}

/** @brief The groups of an optimiser with their state.
 *
 *  A step is `update(parameters, number, options, clip, numbers)` for each group, or the step that
 *  this prepares; without `number` where the rule counts no steps. While a graph is recorded its
 *  replays take `numbers_of(number, options)`. What state there is says state_names(options). */
template <class Options_, class Parameter, auto update, auto numbers_of>
class StateGroups {
 public:
  using Options = Options_;

  /** @throws Error for options that cannot be. */
  void add(const OptimizerGroup<Options>& given) {
    step({}, 1, given.options, {}, {})();  // an empty step: options are refused here, not later
    Group& group = groups_.emplace_back();
    group.options = given.options;
    group.variables = given.parameters;
    const auto names = state_names(given.options);
    for (const nn::NamedVariable& p : given.parameters) {
      const Tensor& value = p.variable.data();
      Parameter& parameter = group.parameters.emplace_back();
      parameter.master = master_copy(value);
      for (size_t i = 0; i < names.size(); ++i)
        if (names[i]) parameter.*Parameter::states[i] = new_state(i, value);
    }
  }
  void append_state(std::vector<NamedTensor>& to) const {
    for (const Group& group : groups_) {
      const auto names = state_names(group.options);
      for (size_t k = 0; k < group.variables.size(); ++k) {
        const std::string& name = group.variables[k].name;
        const Parameter& parameter = group.parameters[k];
        for (size_t i = 0; i < names.size(); ++i)
          append(to, name, names[i], parameter.*Parameter::states[i]);
        append(to, name, "master", parameter.master);
      }
    }
  }
  void append_rates(std::vector<double*>& to) {
    for (Group& group : groups_) to.push_back(&group.options.learning_rate);
  }
  /** @brief Appends step `number` of each group to `steps`, checked as far as the rule can without
   *  changing anything. Replays are steps of `owner`, which must outlive the graph. */
  void prepare(int64_t number, const GradientClip& clip, const Optimizer& owner,
               std::vector<PreparedStep>& steps) {
    for (Group& group : groups_) {
      Tensor numbers;
      if (Recording* recording = Recording::current()) {
        const auto count = static_cast<int64_t>(numbers_of(number, group.options).size());
        numbers = recording->live(count, [&owner, &group](std::span<double> to) {
          std::ranges::copy(numbers_of(owner.steps() + 1, group.options), to.begin());
        });
      }
      const std::shared_ptr<const std::vector<Parameter>> parameters = group.with_gradients();
      PreparedStep prepared = step(*parameters, number, group.options, clip, numbers);
      steps.push_back([parameters, prepared = std::move(prepared)] { prepared(); });
    }
  }

 private:
  struct Group {
    std::vector<nn::NamedVariable> variables;
    std::vector<Parameter> parameters;  ///< their state; value and gradient only during a step
    Options options;

    /** @brief The parameters as they are until the last handle is gone. Then a gradient has one
     *  owner again, so that the next backward may add to it in place. */
    std::shared_ptr<const std::vector<Parameter>> with_gradients() {
      std::shared_ptr<const std::vector<Parameter>> held(
          &parameters, [this](const auto*) { forget_gradients(); });
      for (size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].value = variables[i].variable.data();
        parameters[i].gradient = variables[i].variable.grad();
      }
      return held;
    }
    void forget_gradients() {
      for (Parameter& p : parameters) p.value = p.gradient = {};
    }
  };
  /** @brief State number i of a parameter, undefined where it needs none. */
  static Tensor new_state(size_t i, const Tensor& value) {
    if constexpr (requires { Parameter::state_shape(i, value.shape()); }) {
      const auto shape = Parameter::state_shape(i, value.shape());
      return shape ? state_like(value, *shape) : Tensor();
    } else {
      return state_like(value, value.shape());
    }
  }
  static void append(std::vector<NamedTensor>& to, const std::string& parameter, const char* name,
                     const Tensor& tensor) {
    if (tensor.defined()) to.push_back({parameter + "." + name, tensor});
  }
  static PreparedStep step(const std::vector<Parameter>& parameters, int64_t number,
                           const Options& options, const GradientClip& clip,
                           const Tensor& numbers) {
    const auto call = [=, &parameters] {
      if constexpr (requires { update(parameters, number, options, clip, numbers); }) {
        return update(parameters, number, options, clip, numbers);
      } else {
        return update(parameters, options, clip, numbers);
      }
    };
    if constexpr (std::is_void_v<decltype(call())>) {
      return call;
    } else {
      return call();
    }
  }
  std::vector<Group> groups_;
};

/** @brief An optimiser with one rule for all its groups. */
template <class Options, class Parameter, auto update, auto numbers_of>
class GroupOptimizer : public Optimizer {
 public:
  explicit GroupOptimizer(const std::vector<OptimizerGroup<Options>>& groups) {
    for (const OptimizerGroup<Options>& group : groups) {
      for (const nn::NamedVariable& p : group.parameters) adopt(p);
      groups_.add(group);
    }
    begin();
  }
  /** @brief All parameters that are not frozen, as one group. */
  explicit GroupOptimizer(const nn::Module& module, const Options& options = {})
      : GroupOptimizer({OptimizerGroup<Options>{trainable(module), options}}) {}

  /** @brief Two groups of a module, as the free function makes them; but `{.weight_decay = .1}`
   *  needs no name of its type here. */
  static std::vector<OptimizerGroup<Options>> decay_groups(const nn::Module& module,
                                                           const Options& options) {
    return groups_by_decay(module, options);
  }

  std::vector<NamedTensor> state() const override {
    std::vector<NamedTensor> tensors;
    groups_.append_state(tensors);
    return tensors;
  }

 private:
  std::vector<double*> rates() override {
    std::vector<double*> all;
    groups_.append_rates(all);
    return all;
  }
  void apply(int64_t number, const GradientClip& clip) override {
    std::vector<PreparedStep> steps;
    groups_.prepare(number, clip, *this, steps);
    for (const PreparedStep& step : steps) step();
  }
  StateGroups<Options, Parameter, update, numbers_of> groups_;
};

}  // namespace bs::optim

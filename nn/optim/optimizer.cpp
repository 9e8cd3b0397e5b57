#include <bs/nn/optim/optimizer.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/lib/out_of_memory.h>
#include <bs/lib/recording.h>

#include <algorithm>
#include <cmath>
#include <new>

namespace bs::optim {

void Optimizer::step(const GradientClip& clip) try {
  apply(steps_ + 1, clip);
  if (Recording* recording = Recording::current()) {
    recording->at_refresh([this] { ++steps_; });  // recording is no step, each replay is one
  } else {
    ++steps_;
  }
} catch (const std::bad_alloc&) {
  out_of_own_memory("optimizer step");
}

void Optimizer::zero_grad() const {
  for (const nn::NamedVariable& p : parameters_) p.variable.zero_grad();
}

namespace {
void check_rate(double rate) {
  BS_CHECK(std::isfinite(rate) && rate >= 0, "optimizer: a learning rate of {}", rate);
}
}  // namespace

void Optimizer::begin() {
  BS_CHECK(!parameters_.empty(), "optimizer: there are no parameters to change");
  first_rates_.clear();
  for (const double* rate : rates()) {
    check_rate(*rate);
    first_rates_.push_back(*rate);
  }
}

void Optimizer::set_learning_rate(double rate) {
  check_rate(rate);
  for (double* each : rates()) *each = rate;
}

void Optimizer::scale_learning_rates(double factor) {
  check_rate(factor);
  const std::vector<double*> each = rates();
  for (size_t i = 0; i < each.size(); ++i) *each[i] = factor * first_rates_.at(i);
}

void Optimizer::set_steps(int64_t steps) {
  BS_CHECK(steps >= 0, "optimizer: {} steps done", steps);
  steps_ = steps;
}

void Optimizer::adopt(const nn::NamedVariable& parameter) {
  BS_CHECK(parameter.variable.requires_grad(), "optimizer: {} requires no gradient",
           parameter.name);
  for (const nn::NamedVariable& p : parameters_) {
    BS_CHECK(p.name != parameter.name, "optimizer: two parameters are named {}", p.name);
    BS_CHECK(!p.variable.is_same(parameter.variable),
             "optimizer: {} and {} are one parameter, which would be stepped twice", p.name,
             parameter.name);
  }
  parameters_.push_back(parameter);
}

Tensor master_copy(const Tensor& value) {
  return is_low_precision(value.dtype()) ? cast(value, f32) : Tensor();
}

Tensor state_like(const Tensor& value, const Shape& shape) {
  return zeros(shape, value.dtype() == f64 ? f64 : f32, value.device());
}

std::vector<nn::NamedVariable> trainable(const nn::Module& module) {
  std::vector<nn::NamedVariable> all = module.named_parameters();
  std::erase_if(all, [](const nn::NamedVariable& p) { return !p.variable.requires_grad(); });
  return all;
}

DecaySplit split_for_decay(const nn::Module& module) {
  DecaySplit split;
  for (const nn::NamedVariable& p : trainable(module))
    (p.variable.rank() >= 2 ? split.decayed : split.free).push_back(p);
  return split;
}

}  // namespace bs::optim

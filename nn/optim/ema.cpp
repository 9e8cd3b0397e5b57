#include <bs/nn/optim/ema.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/ema.h>
#include <bs/lib/recording.h>

#include <algorithm>

namespace bs::optim {

Ema::Ema(const nn::Module& module, double decay) : decay_(decay) {
  BS_CHECK(decay >= 0 && decay < 1, "ema: a decay of {}", decay);
  for (nn::NamedVariable& p : module.named_parameters()) {
    const Tensor average = state_like(p.variable.data());
    copy(p.variable.data(), average);
    entries_.push_back({std::move(p), average});
  }
}

namespace {

double decay_after(int64_t step, double most) {
  const auto t = static_cast<double>(step);
  return std::min(most, (1 + t) / (10 + t));
}

}  // namespace

void Ema::take_in(double decay, const Tensor& mix) const {
  std::vector<EmaParameter> parameters;
  parameters.reserve(entries_.size());
  for (const Entry& e : entries_) parameters.push_back({e.parameter.variable.data(), e.average});
  ema(parameters, decay, mix);
}

void Ema::update(int64_t step) const { take_in(decay_after(step, decay_), {}); }

void Ema::update(const Optimizer& optimizer) const {
  Tensor mix;
  if (Recording* recording = Recording::current())
    mix = recording->live(1, [most = decay_, &optimizer](std::span<double> to) {
      to[0] = 1 - decay_after(optimizer.steps(), most);
    });
  take_in(decay_after(optimizer.steps(), decay_), mix);
}

std::vector<NamedTensor> Ema::state() const {
  std::vector<NamedTensor> tensors;
  for (const Entry& e : entries_) tensors.push_back({e.parameter.name, e.average});
  return tensors;
}

AverageScope::AverageScope(const Ema& ema) : ema_(ema) {
  // All memory first: where there is none, the weights are what they were.
  kept_.reserve(ema.entries_.size());
  for (const Ema::Entry& e : ema.entries_) kept_.push_back(clone(e.parameter.variable.data()));
  try {
    for (const Ema::Entry& e : ema.entries_) copy(e.average, e.parameter.variable.data());
  } catch (...) {
    restore();
    throw;
  }
}

AverageScope::~AverageScope() { restore(); }

void AverageScope::restore() const {
  for (size_t i = 0; i < kept_.size(); ++i)
    copy(kept_[i], ema_.entries_[i].parameter.variable.data());
}

}  // namespace bs::optim

#include <bs/nn/optim/rate_factor.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bs::optim {

double StepDecay::at(int64_t step) const {
  BS_CHECK(step >= 0 && every >= 1 && factor > 0, "step_decay: step {}, a factor of {} every {}",
           step, factor, every);
  const int64_t falls = step / every;
  return std::pow(factor, static_cast<double>(falls));
}

double MultiStepDecay::at(int64_t step) const {
  BS_CHECK(step >= 0 && factor > 0, "multi_step_decay: step {}, a factor of {}", step, factor);
  BS_CHECK(std::is_sorted(steps.begin(), steps.end()) && (steps.empty() || steps.front() >= 0),
           "multi_step_decay: {} steps that do not ascend from 0 or later", steps.size());
  const auto passed = std::upper_bound(steps.begin(), steps.end(), step) - steps.begin();
  return std::pow(factor, static_cast<double>(passed));
}

double OneCycle::at(int64_t step) const {
  BS_CHECK(step >= 0 && steps >= 1 && rise >= 0 && rise <= 1,
           "one_cycle: step {} of {}, of which a share of {} rises", step, steps, rise);
  const auto between = [](double from, double to, double share) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * share));
  };
  const double at = std::min(1.0, static_cast<double>(step) / static_cast<double>(steps));
  if (at < rise) return between(first, 1, at / rise);
  return rise == 1 ? 1 : between(1, last, (at - rise) / (1 - rise));
}

double WarmRestarts::at(int64_t step) const {
  BS_CHECK(step >= 0 && first >= 1 && growth >= 1,
           "warm_restarts: step {}, restarts after {} steps, {} times as long each time", step,
           first, growth);
  const auto after = [this](int64_t since, double length) {
    const double share = static_cast<double>(since) / length;
    return lowest + (1 - lowest) * 0.5 * (1 + std::cos(std::numbers::pi * share));
  };
  if (growth == 1) return after(step % first, static_cast<double>(first));
  int64_t length = first, since = step;
  for (; since >= length; length *= growth) {
    since -= length;
    if (length > std::numeric_limits<int64_t>::max() / growth)  // no step comes to its end
      return after(since, static_cast<double>(length) * static_cast<double>(growth));
  }
  return after(since, static_cast<double>(length));
}

Plateau::Plateau(const Options& options) : options_(options) {
  BS_CHECK(options.factor > 0 && options.factor < 1 && options.patience >= 0,
           "plateau: a factor of {} after {} values", options.factor, options.patience);
}

double Plateau::update(double value) {
  auto& [factor, best, bad] = state_;
  if (value < best - options_.threshold * std::abs(best) || (std::isinf(best) && value < best)) {
    best = value;
    bad = 0;
  } else if (++bad > options_.patience) {
    factor = std::max(options_.lowest, factor * options_.factor);
    bad = 0;
  }
  return factor;
}

}  // namespace bs::optim

#include <bs/lib/check.h>
#include <bs/nn/optim/lr_schedule.h>

#include <cmath>
#include <numbers>

namespace bs::optim {

std::string to_string(Decay decay) {
  constexpr const char* names[] = {"cosine", "linear", "constant"};
  return names[static_cast<size_t>(decay)];
}

Decay parse_decay(std::string_view name) {
  for (Decay decay : {Decay::cosine, Decay::linear, Decay::constant})
    if (to_string(decay) == name) return decay;
  BS_THROW(Error, "schedule: \"{}\" is none of cosine, linear and constant", name);
}

double LearningRateSchedule::at(int64_t step) const {
  BS_CHECK(step >= 0, "schedule: step {} is negative", step);
  BS_CHECK(warmup >= 0 && warmup <= steps, "schedule: a warm-up of {} steps out of {}", warmup,
           steps);
  if (step < warmup) return highest * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::constant) return highest;
  if (step >= steps) return lowest;
  const double p = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  if (decay == Decay::linear) return highest + (lowest - highest) * p;
  return lowest + 0.5 * (highest - lowest) * (1 + std::cos(std::numbers::pi * p));
}

}  // namespace bs::optim

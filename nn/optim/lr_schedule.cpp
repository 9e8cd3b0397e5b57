#include <bs/nn/optim/lr_schedule.h>

#include <bs/lib/check.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bs::optim {

std::string to_string(Decay decay) {
  constexpr const char* names[] = {"cosine", "linear", "constant", "exponential"};
  return names[static_cast<size_t>(decay)];
}

Decay parse_decay(std::string_view name) {
  for (Decay decay : {Decay::cosine, Decay::linear, Decay::constant, Decay::exponential})
    if (to_string(decay) == name) return decay;
  BS_THROW(Error, "schedule: \"{}\" is none of cosine, linear, constant and exponential", name);
}

double LearningRateSchedule::at(int64_t step) const {
  BS_CHECK(step >= 0, "schedule: step {} is negative", step);
  BS_CHECK(warmup >= 0 && warmup <= steps, "schedule: a warm-up of {} steps out of {}", warmup,
           steps);
  BS_CHECK(hold >= 0 && (hold <= steps - warmup || decay == Decay::exponential),
           "schedule: a warm-up of {} and {} steps held out of {}", warmup, hold, steps);
  BS_CHECK(decay != Decay::exponential || half_life > 0, "schedule: a half-life of {} steps",
           half_life);
  if (step < warmup) return highest * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::constant) return highest;
  if (step - warmup < hold) return highest;  // a sum of the two may be too large
  const int64_t since = step - warmup - hold;
  if (decay == Decay::exponential)
    return std::max(lowest, highest * std::exp2(-static_cast<double>(since) / half_life));
  if (step >= steps) return lowest;
  const double p = static_cast<double>(since) / static_cast<double>(steps - warmup - hold);
  if (decay == Decay::linear) return highest + (lowest - highest) * p;
  return lowest + 0.5 * (highest - lowest) * (1 + std::cos(std::numbers::pi * p));
}

}  // namespace bs::optim

#pragma once
/** @file The learning rate as a function of the step. */
#include <cstdint>
#include <string>
#include <string_view>

namespace bs::optim {

/** @brief How the rate falls after the warm-up. */
enum class Decay : uint8_t { cosine, linear, constant };
std::string to_string(Decay decay);
/** @brief Inverse of to_string. @throws Error for an unknown name. */
Decay parse_decay(std::string_view name);

/** @brief A linear warm-up, then a fall to `lowest` at step `steps`; `lowest` from there on.
 *
 *  With s the step, from 0, and p = (s - warmup) / (steps - warmup):
 *  s < warmup: highest * (s + 1) / warmup; cosine: lowest + (highest - lowest) (1 + cos(pi p)) / 2;
 *  linear: highest + (lowest - highest) p; constant: highest for ever. */
struct LearningRateSchedule {
  double highest = 1e-3;
  double lowest = 0;
  int64_t warmup = 0;
  int64_t steps = 1;
  Decay decay = Decay::cosine;

  /** @throws Error for a negative step, or extents that contradict each other. */
  double at(int64_t step) const;
};

}  // namespace bs::optim

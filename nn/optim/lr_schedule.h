#pragma once
/** @file The learning rate as a function of the step. */
#include <cstdint>
#include <string>
#include <string_view>

namespace bs::optim {

/** @brief How the rate falls after the warm-up. */
enum class Decay : uint8_t { cosine, linear, constant, exponential };
std::string to_string(Decay decay);
/** @brief Inverse of to_string. @throws Error for an unknown name. */
Decay parse_decay(std::string_view name);

/** @brief A linear warm-up, `hold` steps at the highest rate, then a fall to `lowest` at step
 *  `steps`; `lowest` from there on.
 *
 *  With s the step, from 0, h = warmup + hold, and p = (s - h) / (steps - h):
 *  s < warmup: highest * (s + 1) / warmup; then, up to h: highest;
 *  cosine: lowest + (highest - lowest) (1 + cos(pi p)) / 2;
 *  linear: highest + (lowest - highest) p; constant: highest for ever;
 *  exponential: max(lowest, highest * 2^(-(s - h) / half_life)), whatever `steps` is. */
struct LearningRateSchedule {
  double highest = 1e-3;
  double lowest = 0;
  int64_t warmup = 0;
  int64_t steps = 1;
  Decay decay = Decay::cosine;
  int64_t hold = 0;
  double half_life = 0;  ///< steps in which the rate halves; of the exponential decay alone

  /** @throws Error for a negative step, or extents that contradict each other. */
  double at(int64_t step) const;
};

}  // namespace bs::optim

#pragma once
/** @file Exponential times, of which the shortest draw classes. */
#include <bs/kernels/distribution.h>

#include <cmath>

namespace bs {

/** @brief When the clock of a class rings: an exponential time of rate `weight`, which is never 0;
 *  infinite for a weight of 0. */
BS_HOST_DEVICE inline double exponential_clock(uint64_t bits, double weight) {
  const double time = -reproducible_log(unit_interval<53>(bits) + 0x1p-53);
  return (time > 0x1p-54 ? time : 0x1p-54) / weight;
}

/** @brief The square root of a clock of a word in f32: a normal number for any weight but 0, where
 *  times would overflow or underflow. Roots ring in the same order. */
BS_HOST_DEVICE inline float exponential_clock_root(uint32_t word, float weight) {
  const float time = -reproducible_log(word);
  const bool large = weight >= 1;  // scaled on the way, so that the quotient is a normal number
  const float scaled = (time > 0x1p-33F ? time : 0x1p-33F) * (large ? 0x1p64F : 0x1p-64F);
  return std::sqrt(scaled / weight) * (large ? 0x1p-32F : 0x1p32F);
}

}  // namespace bs

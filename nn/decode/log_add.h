#pragma once
/** @file Sums of probabilities that are held as logarithms. */
#include <algorithm>
#include <cmath>

namespace bs::decode {

/** @brief log(exp a + exp b), where either may be -infinity. */
inline double log_add(double a, double b) {
  const auto [low, high] = std::minmax(a, b);
  return std::isinf(low) ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace bs::decode

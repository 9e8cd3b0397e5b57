#pragma once
/** @file Activations by their formulas in double. */
#include <bs/kernels/activation.h>

#include <algorithm>
#include <cmath>

namespace bs::test {

inline double activated(Activation f, double x) {
  switch (f) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    default:
      return x;
  }
}

}  // namespace bs::test

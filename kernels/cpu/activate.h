#pragma once
/** @file The activations of kernels/activation.h over an array. */
#include <bs/kernels/activation.h>
#include <bs/kernels/cpu/normal_math.h>

namespace bs::cpu {

/** @brief x = f(x), element by element, of floats or doubles. */
template <class W>
void activate(Activation f, W* x, int64_t n) {
  const auto each = [&](auto g) {
    for (int64_t i = 0; i < n; ++i) x[i] = g(x[i]);
  };
  switch (f) {
    case Activation::none:
      return;
    case Activation::relu:
      return each([](W v) { return v < 0 ? W(0) : v; });
    case Activation::tanh:
      return each([](W v) { return math::tanh(v); });
    case Activation::sigmoid:
      return each([](W v) { return math::sigmoid(v); });
    case Activation::silu:
      return each([](W v) { return v * math::sigmoid(v); });
    case Activation::gelu:
      return each([](W v) { return v * math::normal_cdf(v); });
    case Activation::gelu_tanh:  // 1 + tanh(u) = 2 sigmoid(2 u)
      return each([](W v) {
        return v * math::sigmoid(W(1.5957691216057308) * v * (1 + W(0.044715) * v * v));
      });
  }
}

}  // namespace bs::cpu

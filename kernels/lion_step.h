#pragma once
/** @file Lion's arithmetic for one element, written once for both devices. */
#include <bs/kernels/lion.h>
#include <bs/lib/host_device.h>

namespace bs {

/** @brief The constants of one step, reduced in double to what each element needs. */
template <class W>
struct LionStep {
  static constexpr size_t states = 1, optional = 0;
  W keep, rate, mix1, mix2;

  explicit LionStep(const LionOptions& o)
      : mix1(static_cast<W>(1 - o.beta1)), mix2(static_cast<W>(1 - o.beta2)) {
    set(numbers(o).data());
  }

  /** @brief What changes from step to step: keep and rate. */
  static std::array<double, 2> numbers(const LionOptions& o) {
    return {1 - o.learning_rate * o.weight_decay, o.learning_rate};
  }
  /** @brief Takes other numbers(); none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    keep = static_cast<W>(numbers[0]);
    rate = static_cast<W>(numbers[1]);
  }

  /** @brief Updates a weight and its momentum by the gradient g. */
  BS_HOST_DEVICE void operator()(W& w, W g, W& m) const {
    const W u = m + mix1 * (g - m);
    // A zero is left as it is, and so is a NaN.
    const W sign = u > 0 ? W(1) : u < 0 ? W(-1) : u;
    w = keep * w - rate * sign;
    m += mix2 * (g - m);
  }
};

}  // namespace bs

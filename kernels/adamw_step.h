#pragma once
/** @file AdamW's arithmetic for one element, written once for both devices. */
#include <bs/kernels/adamw.h>
#include <bs/lib/host_device.h>

#include <cmath>

namespace bs {

/** @brief The constants of one step, reduced in double to what each element needs. */
template <class W>
struct AdamWStep {
  static constexpr size_t states = 2, optional = 0;
  W keep, mix1, beta2, mix2, rate, scale2, eps;

  AdamWStep(int64_t step, const AdamWOptions& o)
      : mix1(static_cast<W>(1 - o.beta1)),
        beta2(static_cast<W>(o.beta2)),
        mix2(static_cast<W>(1 - o.beta2)),
        eps(static_cast<W>(o.eps)) {
    set(numbers(step, o).data());
  }

  /** @brief What changes from step to step: keep, rate and scale2. */
  static std::array<double, 3> numbers(int64_t step, const AdamWOptions& o) {
    return {1 - o.learning_rate * o.weight_decay, o.learning_rate / bias_correction(o.beta1, step),
            1 / std::sqrt(bias_correction(o.beta2, step))};
  }
  /** @brief Takes other numbers(); none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    keep = static_cast<W>(numbers[0]);
    rate = static_cast<W>(numbers[1]);
    scale2 = static_cast<W>(numbers[2]);
  }

  /** @brief Updates a weight and its two moments by the gradient g. */
  BS_HOST_DEVICE void operator()(W& w, W g, W& m, W& v) const {
    m += mix1 * (g - m);
    v = beta2 * v + mix2 * g * g;
    w = keep * w - rate * m / (std::sqrt(v) * scale2 + eps);
  }
};

}  // namespace bs

#pragma once
/** @file LAMB's arithmetic for one element, written once for both devices. */
#include <bs/kernels/lamb.h>
#include <bs/lib/host_device.h>

#include <cmath>

namespace bs {

/** @brief The constants of one step, reduced in double to what each element needs. */
template <class W>
struct LambStep {
  W mix1, beta2, mix2, scale1, scale2, eps, decay;
  double rate;
  bool adapts;

  LambStep(int64_t step, const LambOptions& o)
      : mix1(static_cast<W>(1 - o.beta1)),
        beta2(static_cast<W>(o.beta2)),
        mix2(static_cast<W>(1 - o.beta2)),
        eps(static_cast<W>(o.eps)),
        decay(static_cast<W>(o.weight_decay)),
        adapts(o.weight_decay != 0 || o.always_adapt) {
    set(numbers(step, o).data());
  }

  /** @brief What changes from step to step: rate, scale1 and scale2. */
  static std::array<double, 3> numbers(int64_t step, const LambOptions& o) {
    return {o.learning_rate, 1 / bias_correction(o.beta1, step),
            1 / std::sqrt(bias_correction(o.beta2, step))};
  }
  /** @brief Takes other numbers(); none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    rate = numbers[0];
    scale1 = static_cast<W>(numbers[1]);
    scale2 = static_cast<W>(numbers[2]);
  }

  /** @brief Updates the two moments by the gradient g. */
  BS_HOST_DEVICE void moments(W g, W& m, W& v) const {
    m += mix1 * (g - m);
    v = beta2 * v + mix2 * g * g;
  }
  /** @brief The direction u. */
  BS_HOST_DEVICE W direction(W w, W m, W v) const {
    return m * scale1 / (std::sqrt(v) * scale2 + eps) + decay * w;
  }
  /** @brief What u is multiplied by, of the sums of squares of w and of u. */
  BS_HOST_DEVICE W length(double w_squares, double u_squares) const {
    const bool ratio = adapts && w_squares > 0 && u_squares > 0;
    return static_cast<W>(ratio ? rate * std::sqrt(w_squares / u_squares) : rate);
  }
};

}  // namespace bs

#pragma once
/** @file Adam's arithmetic for one element, written once for both devices. */
#include <bs/kernels/adam.h>
#include <bs/lib/host_device.h>

namespace bs {

/** @brief The constants of one step, reduced in double to what each element needs. */
template <class W>
struct AdamStep {
  static constexpr size_t states = 3, optional = 1;
  W mix1, beta2, mix2, rate, scale2, eps, decay;
  bool amsgrad;

  AdamStep(int64_t step, const AdamOptions& o)
      : mix1(static_cast<W>(1 - o.beta1)),
        beta2(static_cast<W>(o.beta2)),
        mix2(static_cast<W>(1 - o.beta2)),
        eps(static_cast<W>(o.eps)),
        decay(static_cast<W>(o.weight_decay)),
        amsgrad(o.amsgrad) {
    set(numbers(step, o).data());
  }

  /** @brief What changes from step to step: rate and scale2. */
  static std::array<double, 2> numbers(int64_t step, const AdamOptions& o) {
    return {o.learning_rate / bias_correction(o.beta1, step),
            1 / std::sqrt(bias_correction(o.beta2, step))};
  }
  /** @brief Takes other numbers(); none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    rate = static_cast<W>(numbers[0]);
    scale2 = static_cast<W>(numbers[1]);
  }

  /** @brief Updates a weight, its two moments and the largest second one by the gradient g. */
  BS_HOST_DEVICE void operator()(W& w, W g, W& m, W& v, W& largest) const {
    g += decay * w;
    m += mix1 * (g - m);
    v = beta2 * v + mix2 * g * g;
    // In this order a NaN of v comes through. Choices without branches: they vectorise.
    const W most = v <= largest ? largest : v;
    largest = amsgrad ? most : largest;
    w -= rate * m / (std::sqrt(amsgrad ? most : v) * scale2 + eps);
  }
};

}  // namespace bs

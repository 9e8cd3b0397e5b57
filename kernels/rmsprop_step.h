#pragma once
/** @file RMSprop's arithmetic for one element, written once for both devices. */
#include <bs/kernels/rmsprop.h>
#include <bs/lib/host_device.h>

#include <cmath>

namespace bs {

/** @brief The constants of one step. */
template <class W>
struct RMSpropStep {
  static constexpr size_t states = 3, optional = 2;
  W rate, alpha, mix, eps, decay, momentum;
  bool centered;

  explicit RMSpropStep(const RMSpropOptions& o)
      : rate(static_cast<W>(o.learning_rate)),
        alpha(static_cast<W>(o.alpha)),
        mix(static_cast<W>(1 - o.alpha)),
        eps(static_cast<W>(o.eps)),
        decay(static_cast<W>(o.weight_decay)),
        momentum(static_cast<W>(o.momentum)),
        centered(o.centered) {}

  /** @brief Takes another rate; none where it is null. */
  BS_HOST_DEVICE void set(const double* other) {
    if (other) rate = static_cast<W>(*other);
  }

  /** @brief Updates a weight, the averages of squares s and of gradients a, and the momentum b by
   *  the gradient g. */
  BS_HOST_DEVICE void operator()(W& w, W g, W& s, W& b, W& a) const {
    g += decay * w;
    s = alpha * s + mix * g * g;
    if (centered) a += mix * (g - a);
    // Rounding may leave a variance below zero; a NaN stays one.
    const W variance = s - a * a;
    b = momentum * b + g / (std::sqrt(variance < 0 ? W(0) : variance) + eps);
    w -= rate * b;
  }
};

}  // namespace bs

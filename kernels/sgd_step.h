#pragma once
/** @file The arithmetic of gradient descent for one element, written once for both devices. */
#include <bs/kernels/sgd.h>
#include <bs/lib/host_device.h>

namespace bs {

/** @brief The constants of one step. */
template <class W>
struct SgdStep {
  static constexpr size_t states = 1, optional = 1;
  W rate, momentum, decay;
  bool nesterov;

  explicit SgdStep(const SgdOptions& o)
      : rate(static_cast<W>(o.learning_rate)),
        momentum(static_cast<W>(o.momentum)),
        decay(static_cast<W>(o.weight_decay)),
        nesterov(o.nesterov) {}

  /** @brief Takes another rate; none where it is null. */
  BS_HOST_DEVICE void set(const double* other) {
    if (other) rate = static_cast<W>(*other);
  }

  /** @brief Updates a weight and its momentum by the gradient g; without one, b is zero. */
  BS_HOST_DEVICE void operator()(W& w, W g, W& b) const {
    g += decay * w;
    b = momentum * b + g;
    w -= rate * (nesterov ? g + momentum * b : b);
  }
};

}  // namespace bs

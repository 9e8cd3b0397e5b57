#pragma once
/** @file A scaled sum for one element, written once for both devices. */
#include <bs/kernels/axpby.h>
#include <bs/lib/host_device.h>

namespace bs {

template <class W>
struct AxpbyStep {
  static constexpr size_t states = 0, optional = 0;
  W keep, mix;

  AxpbyStep(double keep_, double mix_) : keep(static_cast<W>(keep_)), mix(static_cast<W>(mix_)) {}

  /** @brief Takes others; none where it is null. */
  BS_HOST_DEVICE void set(const double* numbers) {
    if (!numbers) return;
    keep = static_cast<W>(numbers[0]);
    mix = static_cast<W>(numbers[1]);
  }

  BS_HOST_DEVICE void operator()(W& y, W x) const { y = keep * y + mix * x; }
};

}  // namespace bs

#pragma once
/** @file A tensor within a larger one, whose other elements are one number. pad.h, concat.h and
 *  arange.h show what is made of it. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/operand.h>

namespace bs {

/** @brief Where x lies in y. Element i of an axis stands at low + i * step: XLA's padding, whose
 *  interior is step - 1. */
struct AxisPlaces {
  Shape inner;  ///< of x
  Dims low, step;

  /** @brief Those that lie in a y of that shape. `first` becomes the first element of each axis
   *  of x that does. */
  AxisPlaces within(const Shape& y, Dims& first) const;
};

/** @brief The part of x that lies in y, and where it does. */
struct PadViews {
  Tensor from, to;
};
/** @throws Error where places do not fit x or y, or a step is below 1. */
PadViews pad_views(const Operand& x, const AxisPlaces& places, const Tensor& y);

/// y, dense in row-major order and not empty, is x where that lies in it, and `value` elsewhere.
/// x is a number, or of y's dtype and any strides; what would stand outside of y is left out.
BS_BACKENDS(void pad_axes(const Operand& x, const AxisPlaces& places, double value, const Tensor& y,
                          Stream stream))

}  // namespace bs

#pragma once
/** @file Questions about all elements. */
#include <bs/kernels/dispatch.h>
#include <bs/kernels/reduce.h>

namespace bs {

/** @brief Whether some element along `axes` is not zero; bool. NaN is not zero. */
Tensor any(const Tensor& x, const Axes& axes = {}, bool keepdim = false);
/** @brief Whether every element along `axes` is not zero; bool, true over nothing. */
Tensor all(const Tensor& x, const Axes& axes = {}, bool keepdim = false);

/** @name Logic of elements, of which those that are not zero are true; bool, broadcast
 *  @{ */
Tensor logical_not(const Tensor& x);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
/** @} */

/** @brief Whether both have one shape and equal elements; NaN equals nothing. Waits for the device.
 *  @throws Error when devices differ. */
bool equal(const Tensor& a, const Tensor& b);

struct CloseOptions {
  double rtol = 1e-5;
  double atol = 1e-8;
  bool equal_nan = false;  ///< whether NaN is close to NaN
};
/** @brief Whether |a - b| <= atol + rtol |b| everywhere; shapes broadcast. An infinity is close to
 *  itself alone. 16-bit floats are compared in f32. Waits for the device.
 *  @throws Error when devices differ or shapes do not broadcast. */
bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options = {});

/// Whether all elements are close goes to `close`, a bool. Both are of one dtype and shape, in any
/// strides.
BS_BACKENDS(void all_close(const Tensor& a, const Tensor& b, const CloseOptions& options,
                           const Tensor& close, Stream stream))

}  // namespace bs

#pragma once
/** @file Tensors of evenly spaced values. */
#include <bs/kernels/dispatch.h>

namespace bs {

/** @brief The values start, start + step, ... before `end`; any dtype but boolean. Computed in
 *  double, rounded once, the same on every device; exact for integers up to 2^53.
 *  @throws Error for a step of 0 or one that leads away from `end`. */
Tensor arange(double start, double end, double step = 1, DType dtype = i64,
              Device device = Device::cpu());
/** @brief The values 0 .. count-1. */
inline Tensor arange(int64_t count, DType dtype = i64, Device device = Device::cpu()) {
  return arange(0, static_cast<double>(count), 1, dtype, device);
}
/** @brief `count` values evenly spaced from `start` to `end`, both included; floating. */
Tensor linspace(double start, double end, int64_t count, DType dtype = f32,
                Device device = Device::cpu());
/** @brief A matrix [rows, cols] with ones on the diagonal; cols = rows when left out. */
Tensor eye(int64_t rows, int64_t cols = -1, DType dtype = f32, Device device = Device::cpu());

/// start, start + step, ..., and from element `half` on second, second + step, ...
struct Ramp {
  double start, step;
  int64_t half;
  double second;
};
BS_BACKENDS(void arange(const Tensor& x, const Ramp& ramp, Stream stream))

}  // namespace bs

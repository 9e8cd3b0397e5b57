#include <bs/kernels/arange.h>
#include <bs/kernels/pad_axes.h>

#include <cmath>

namespace bs {

Tensor arange(double start, double end, double step, DType dtype, Device device) {
  BS_CHECK(step != 0 && std::isfinite(step), "arange: a step of {}", step);
  BS_CHECK(dtype != boolean, "arange: dtype {} is not supported", dtype);
  const double count = std::ceil((end - start) / step);
  BS_CHECK(count >= 0 && count <= 0x1p53, "arange: steps of {} do not lead from {} to {}", step,
           start, end);
  Tensor x = Tensor::empty({static_cast<int64_t>(count)}, dtype, device);
  if (x.numel() > 0) BS_DISPATCH(device, arange, x, Ramp{start, step, x.numel(), 0});
  return x;
}

Tensor linspace(double start, double end, int64_t count, DType dtype, Device device) {
  BS_CHECK(count >= 0, "linspace: {} values", count);
  BS_CHECK(is_floating(dtype), "linspace: dtype {} is not floating", dtype);
  Tensor x = Tensor::empty({count}, dtype, device);
  if (count == 0) return x;
  // Counted from both ends, so that both are exact.
  const double step = count > 1 ? (end - start) / static_cast<double>(count - 1) : 0;
  const int64_t half = (count + 1) / 2;
  const double second = end - step * static_cast<double>(count - 1 - half);
  BS_DISPATCH(device, arange, x, Ramp{start, step, half, second});
  return x;
}

Tensor eye(int64_t rows, int64_t cols, DType dtype, Device device) {
  if (cols < 0) cols = rows;
  Tensor x = Tensor::empty({rows, cols}, dtype, device);
  if (x.numel() == 0) return x;
  // Ones stand a row and a column apart in all elements behind each other.
  const AxisPlaces diagonal{{std::min(rows, cols)}, {0}, {cols + 1}};
  BS_DISPATCH(device, pad_axes, Scalar(1), diagonal, 0.0, x.view({x.numel()}));
  return x;
}

}  // namespace bs

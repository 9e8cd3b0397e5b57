#include <bs/kernels/interpolate.h>

#include <bs/kernels/image.h>
#include <bs/kernels/resample.h>

#include <algorithm>
#include <cmath>

namespace bs {

namespace {

AxisMap nearest_map(int64_t in, int64_t out) {
  AxisMap map(in);
  for (int64_t o = 0; o < out; ++o) {
    map.add(o * in / out, 1);
    map.end();
  }
  return map;
}

AxisMap linear_map(int64_t in, int64_t out, bool align_corners) {
  AxisMap map(in);
  for (int64_t o = 0; o < out; ++o) {
    const auto at = static_cast<double>(o), n = static_cast<double>(in),
               m = static_cast<double>(out);
    const double corner = out > 1 ? at * (n - 1) / (m - 1) : 0;
    const double place = align_corners ? corner : std::max((at + 0.5) * n / m - 0.5, 0.0);
    const int64_t low = std::min(static_cast<int64_t>(place), in - 1);
    const double weight = low + 1 < in ? place - static_cast<double>(low) : 0;
    map.add(low, 1 - weight);
    map.add(low + 1, weight);
    map.end();
  }
  return map;
}

ImageMap map_of(const char* op, const Shape& x, const InterpolateOptions& o) {
  check_image(op, x);
  BS_CHECK(x[2] > 0 && x[3] > 0 && o.size.h > 0 && o.size.w > 0,
           "{}: x {} cannot become {} x {} pixels", op, x, o.size.h, o.size.w);
  check_image(op, {x[0], x[1], o.size.h, o.size.w});
  if (o.mode == Interpolation::nearest)
    return {nearest_map(x[2], o.size.h), nearest_map(x[3], o.size.w)};
  return {linear_map(x[2], o.size.h, o.align_corners), linear_map(x[3], o.size.w, o.align_corners)};
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  return resample("interpolate", map_of("interpolate", x.shape(), options), x);
}

Tensor interpolate_backward(const Tensor& dy, const Shape& x_shape,
                            const InterpolateOptions& options) {
  constexpr const char* op = "interpolate_backward";
  const ImageMap map = map_of(op, x_shape, options);
  check_same_images(op, dy, x_shape);
  return resample(op, map.transposed(), dy);
}

}  // namespace bs

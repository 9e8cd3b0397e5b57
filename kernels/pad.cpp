#include <bs/kernels/pad.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/image.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/pad_axes.h>
#include <bs/kernels/resample.h>

#include <algorithm>
#include <vector>

namespace bs {

namespace {

/// Where the elements of an axis of `in` come from; outside of it those of a constant border.
std::vector<int64_t> places(const char* op, int64_t in, int64_t before, int64_t after,
                            PadMode mode) {
  BS_CHECK(before >= 0 && after >= 0, "{}: padding {} and {} is negative", op, before, after);
  BS_CHECK(std::max(before, after) <= most_pixels, "{}: padding {} and {}, of which {} is the most",
           op, before, after, most_pixels);
  if (mode == PadMode::reflect)
    BS_CHECK(std::max(before, after) < in, "{}: {} and {} elements cannot be reflected from {}", op,
             before, after, in);
  if (mode == PadMode::replicate) BS_CHECK(in > 0, "{}: there is no element to replicate", op);
  std::vector<int64_t> from;
  for (int64_t i = -before; i < in + after; ++i) {
    int64_t place = i;
    if (mode == PadMode::reflect) {
      place = place < 0 ? -place : place;
      place = place >= in ? 2 * (in - 1) - place : place;
    }
    if (mode == PadMode::replicate) place = std::clamp<int64_t>(place, 0, in - 1);
    from.push_back(place);
  }
  return from;
}

AxisMap border_map(const char* op, int64_t in, int64_t before, int64_t after, PadMode mode) {
  AxisMap map(in);
  for (const int64_t place : places(op, in, before, after, mode)) {
    if (place >= 0 && place < in) map.add(place, 1);
    map.end();
  }
  return map;
}

ImageMap map_of(const char* op, const Shape& x, const PadOptions& o) {
  check_image(op, x);
  const Padding2& p = o.padding;
  return {border_map(op, x[2], p.top, p.bottom, o.mode),
          border_map(op, x[3], p.left, p.right, o.mode)};
}

/// What stands at the two sides of an axis.
struct Border {
  int axis;
  int64_t before, after;
};

/// The borders that are not nothing.
std::vector<Border> borders_of(const char* op, const Shape& x, const PadAxesOptions& o) {
  const int count = o.amounts.rank();
  BS_CHECK(count % 2 == 0 && count <= 2 * x.rank(),
           "{}: {} amounts {} for the {} axes of {}; each axis takes two", op, count, o.amounts,
           x.rank(), x);
  std::vector<Border> borders;
  for (int i = 0; i < count; i += 2) {
    const Border b{x.rank() - 1 - i / 2, o.amounts[i], o.amounts[i + 1]};
    const auto in_reach = [](int64_t n) { return n >= -most_pixels && n <= most_pixels; };
    BS_CHECK(in_reach(b.before) && in_reach(b.after),
             "{}: padding {} and {}, of which {} is the most", op, b.before, b.after, most_pixels);
    BS_CHECK(x[b.axis] + std::min<int64_t>(b.before, 0) + std::min<int64_t>(b.after, 0) >= 0,
             "{}: {} and {} cut more than there is of {}", op, b.before, b.after, x[b.axis]);
    if (b.before != 0 || b.after != 0) borders.push_back(b);
  }
  return borders;
}

Tensor constant_border(const Tensor& x, const std::vector<Border>& borders, double value) {
  AxisPlaces places{x.shape(), Dims::filled(x.rank(), 0), Dims::filled(x.rank(), 1)};
  Shape shape = x.shape();
  for (const Border& b : borders) {
    shape[b.axis] += b.before + b.after;
    places.low[b.axis] = b.before;
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  if (y.numel() > 0) BS_DISPATCH(x.device(), pad_axes, x, places, value, y);
  return y;
}

Tensor places_of(const char* op, const Shape& x, const Border& b, PadMode mode, Device device) {
  const std::vector<int64_t> from = places(op, x[b.axis], b.before, b.after, mode);
  return Tensor::from<int64_t>(from, {static_cast<int64_t>(from.size())}).to(device);
}

}  // namespace

Tensor pad(const Tensor& x, const PadAxesOptions& options) {
  const std::vector<Border> borders = borders_of("pad", x.shape(), options);
  if (options.mode == PadMode::constant) return constant_border(x, borders, options.value);
  Tensor y = x;
  for (const Border& b : borders)
    y = index_select(y, b.axis, places_of("pad", x.shape(), b, options.mode, x.device()));
  return borders.empty() ? clone(x) : y;
}

Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadAxesOptions& options) {
  constexpr const char* op = "pad_backward";
  std::vector<Border> borders = borders_of(op, x_shape, options);
  Shape shape = x_shape;
  for (const Border& b : borders) shape[b.axis] += b.before + b.after;
  BS_CHECK(dy.shape() == shape, "{}: dy {} for a result {}", op, dy.shape(), shape);
  if (options.mode == PadMode::constant) {
    for (Border& b : borders) b = {b.axis, -b.before, -b.after};
    return constant_border(dy, borders, 0);
  }
  Tensor dx = dy;
  for (const Border& b : borders)
    dx = index_select_backward(dx, b.axis, places_of(op, x_shape, b, options.mode, dy.device()),
                               x_shape[b.axis]);
  return borders.empty() ? clone(dy) : dx;
}

Tensor pad(const Tensor& x, const PadOptions& options) {
  return resample("pad", map_of("pad", x.shape(), options), x, options.value);
}

Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadOptions& options) {
  constexpr const char* op = "pad_backward";
  const ImageMap map = map_of(op, x_shape, options);
  check_same_images(op, dy, x_shape);
  return resample(op, map.transposed(), dy);
}

}  // namespace bs

#include <bs/kernels/pad.h>

#include <bs/kernels/image.h>
#include <bs/kernels/resample.h>

#include <algorithm>

namespace bs {

namespace {

AxisMap border_map(const char* op, int64_t in, int64_t before, int64_t after, PadMode mode) {
  BS_CHECK(before >= 0 && after >= 0, "{}: padding {} and {} is negative", op, before, after);
  BS_CHECK(std::max(before, after) <= most_pixels, "{}: padding {} and {}, of which {} is the most",
           op, before, after, most_pixels);
  if (mode == PadMode::reflect)
    BS_CHECK(std::max(before, after) < in, "{}: {} and {} pixels cannot be reflected from {}", op,
             before, after, in);
  if (mode == PadMode::replicate) BS_CHECK(in > 0, "{}: there is no pixel to replicate", op);
  AxisMap map(in);
  for (int64_t o = 0; o < before + in + after; ++o) {
    int64_t i = o - before;
    if (mode == PadMode::reflect) {
      i = i < 0 ? -i : i;
      i = i >= in ? 2 * (in - 1) - i : i;
    }
    if (mode == PadMode::replicate) i = std::clamp<int64_t>(i, 0, in - 1);
    if (i >= 0 && i < in) map.add(i, 1);
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

}  // namespace

Tensor pad(const Tensor& x, const PadOptions& options) {
  return resample("pad", map_of("pad", x.shape(), options), x, options.value);
}

Tensor pad_backward(const Tensor& dy, const Shape& x_shape, const PadOptions& options) {
  constexpr const char* op = "pad_backward";
  return resample(op, map_of(op, x_shape, options).transposed(), dy);
}

}  // namespace bs

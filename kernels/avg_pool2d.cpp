#include <bs/kernels/avg_pool2d.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/image.h>
#include <bs/kernels/pool2d_axis.h>
#include <bs/kernels/reduce.h>
#include <bs/kernels/resample.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs {

namespace {

AxisMap window_map(const char* op, const PoolAxis& axis, const AvgPool2dOptions& options) {
  const int64_t outputs = axis.outputs(op, options.ceil_mode);
  check_map_size(op, outputs, std::min(axis.kernel, axis.in));
  AxisMap map(axis.in);
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t first = o * axis.stride - axis.padding;
    const int64_t padded_end = std::min(first + axis.kernel, axis.in + axis.padding);
    const int64_t begin = std::max<int64_t>(first, 0), end = std::min(padded_end, axis.in);
    const int64_t count = options.count_padding ? padded_end - first : end - begin;
    for (int64_t i = begin; i < end; ++i) map.add(i, 1 / static_cast<double>(count));
    map.end();
  }
  return map;
}

ImageMap map_of(const char* op, const Shape& x, const AvgPool2dOptions& o) {
  check_image(op, x);
  const auto axis = [&](int at, int64_t kernel, int64_t stride, int64_t padding) {
    const PoolAxis a{
        .in = x[at], .kernel = kernel, .stride = stride == 0 ? kernel : stride, .padding = padding};
    return window_map(op, a, o);
  };
  return {axis(2, o.kernel.h, o.stride.h, o.padding.h),
          axis(3, o.kernel.w, o.stride.w, o.padding.w)};
}

AxisMap adaptive_map(int64_t in, int64_t out) {
  AxisMap map(in);
  for (int64_t o = 0; o < out; ++o) {
    const int64_t begin = o * in / out, end = ceil_div((o + 1) * in, out);
    for (int64_t i = begin; i < end; ++i) map.add(i, 1 / static_cast<double>(end - begin));
    map.end();
  }
  return map;
}

ImageMap adaptive_map(const char* op, const Shape& x, Extent2 size) {
  check_image(op, x);
  BS_CHECK(size.h > 0 && size.w > 0 && x[2] > 0 && x[3] > 0, "{}: {} x {} windows of x {}", op,
           size.h, size.w, x);
  check_image(op, {x[0], x[1], size.h, size.w});
  return {adaptive_map(x[2], size.h), adaptive_map(x[3], size.w)};
}

/// Average over all pixels: a reduction, in which many threads share a result.
Tensor global_average(const Tensor& x) {
  if (!is_channels_last(x)) return mean(x, Dims{2, 3}, true);
  return mean(x.permute({0, 2, 3, 1}), Dims{1, 2}, true).permute({0, 3, 1, 2});
}

}  // namespace

Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options) {
  constexpr const char* op = "avg_pool2d";
  return resample(op, map_of(op, x.shape(), options), x);
}

Tensor avg_pool2d_backward(const Tensor& dy, const Shape& x_shape,
                           const AvgPool2dOptions& options) {
  constexpr const char* op = "avg_pool2d_backward";
  const ImageMap map = map_of(op, x_shape, options);
  check_same_images(op, dy, x_shape);
  return resample(op, map.transposed(), dy);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Extent2 size) {
  constexpr const char* op = "adaptive_avg_pool2d";
  const ImageMap map = adaptive_map(op, x.shape(), size);
  if (size == Extent2{1, 1} && is_floating(x.dtype())) return global_average(x);
  return resample(op, map, x);
}

Tensor adaptive_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape) {
  constexpr const char* op = "adaptive_avg_pool2d_backward";
  check_image(op, dy.shape());
  const Extent2 size{dy.size(2), dy.size(3)};
  const ImageMap map = adaptive_map(op, x_shape, size);
  check_same_images(op, dy, x_shape);
  if (size != Extent2{1, 1}) return resample(op, map.transposed(), dy);
  // Of one window: the same for each pixel.
  if (!is_floating(dy.dtype())) detail::unsupported_dtype(op, dy.dtype(), "f64, f32, f16 or bf16");
  const bool last = is_channels_last(dy);
  Tensor dx = empty_image(x_shape, dy.dtype(), dy.device(), last);
  if (dx.numel() == 0) return dx;
  const int64_t pixels = x_shape[2] * x_shape[3], channels = last ? x_shape[1] : 1;
  const int64_t images = dx.numel() / pixels / channels;
  const Tensor dense = contiguous(dy).view({images, 1, channels});
  const Tensor stored = last ? dx.permute({0, 2, 3, 1}) : dx;
  BS_DISPATCH(dy.device(), spread_over_pixels, dense, 1 / static_cast<double>(pixels),
              stored.view({images, pixels, channels}));
  return dx;
}

}  // namespace bs

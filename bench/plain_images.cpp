#include <bs/bench/plain_case_list.h>
#include <bs/kernels/avg_pool2d.h>
#include <bs/kernels/batch_norm.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/conv2d.h>
#include <bs/kernels/dropout.h>
#include <bs/kernels/group_norm.h>
#include <bs/kernels/image.h>
#include <bs/kernels/interpolate.h>
#include <bs/kernels/max_pool2d.h>
#include <bs/kernels/pad.h>

namespace bs::bench {

namespace {

struct Format {
  const char* name;
  bool channels_last;
};

/// Images of 64 channels, as many as a matrix has elements for where they have 32 x 16 pixels.
Tensor images(Cases& c, const Format& format, int64_t height, int64_t width) {
  const Tensor x = c.values({c.rows * c.columns / 32768, 64, height, width});
  return format.channels_last ? channels_last(x) : x;
}

void add_norms(Cases& c, const Format& format) {
  const double n = c.whole();
  const char* const layout = format.name;
  const Tensor x = images(c, format, 32, 16), other = images(c, format, 32, 16),
               dy = images(c, format, 32, 16), weight = c.values({64}), bias = c.values({64});
  c.add("batch_norm", layout, 3 * n, [=] { return batch_norm(x, weight, bias, {}).y; });
  c.add("batch_norm add relu", layout, 4 * n,
        [=] { return batch_norm(x, weight, bias, {}, {.relu = true}, other).y; });
  const BatchNormResult r = batch_norm(x, weight, bias, {}, {.relu = true}, other);
  const BatchNormSaved plain{
      .x = x, .weight = weight, .bias = bias, .mean = r.mean, .rstd = r.rstd};
  BatchNormSaved fused = plain;
  fused.y = r.y, fused.relu = true;
  c.add("batch_norm_backward", layout, 5 * n, [=]() -> std::vector<Tensor> {
    const BatchNormGradients g = batch_norm_backward(plain, dy);
    return {g.dx, g.dweight, g.dbias};
  });
  c.add("batch_norm_backward add relu", layout, 8 * n, [=]() -> std::vector<Tensor> {
    const BatchNormGradients g = batch_norm_backward(fused, dy, true);
    return {g.dx, g.dweight, g.dbias, g.dresidual};
  });
  const Tensor var = add(mul(bias, bias), 1.0);
  c.add("batch_norm_by", layout, 2 * n,
        [=] { return batch_norm_by(x, weight, bias, bias, var).y; });
  const GroupNormOptions groups{.groups = 16};
  c.add("group_norm 16", layout, 3 * n, [=] { return group_norm(x, weight, bias, groups).y; });
  c.add("group_norm_backward 16", layout, 5 * n,
        [=, of = group_norm(x, weight, bias, groups)]() -> std::vector<Tensor> {
          const GroupNormGradients g = group_norm_backward(x, weight, bias, of, dy, groups);
          return {g.dx, g.dweight, g.dbias};
        });
}

/// What several devices do apart.
void add_norm_parts(Cases& c, const Format& format) {
  const double n = c.whole();
  const char* const layout = format.name;
  const Tensor x = images(c, format, 32, 16), dy = images(c, format, 32, 16);
  const Tensor weight = c.values({64}), bias = c.values({64});
  const BatchNormResult r = batch_norm(x, weight, bias, {});
  const BatchNormSaved saved{
      .x = x, .weight = weight, .bias = bias, .mean = r.mean, .rstd = r.rstd};
  const int64_t count = x.numel() / 64;
  c.add("channel_moments", layout, n, [=]() -> std::vector<Tensor> {
    const ChannelMoments m = channel_moments(x);
    return {m.mean, m.squares};
  });
  c.add("batch_norm_backward_sums", layout, 2 * n,
        [=] { return batch_norm_backward_sums(saved, dy); });
  c.add("batch_norm_backward_x", layout, 3 * n, [=, sums = batch_norm_backward_sums(saved, dy)] {
    return batch_norm_backward_x(saved, dy, sums, count).dx;
  });
  c.add("conv2d_backward_bias", layout, n, [=] { return conv2d_backward_bias(dy); });
  c.add("dropout2d", layout, 2 * n, [=] { return dropout2d(x, 0.1, {3, 5}); });
}

void add_pools(Cases& c, const Format& format) {
  const double n = c.whole(), element = static_cast<double>(size_of(c.dtype()));
  const char* const layout = format.name;
  const Tensor x = images(c, format, 32, 16), quarter = images(c, format, 16, 8);
  const MaxPool2dOptions windows{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  const MaxPool2dResult maxima = max_pool2d(x, windows);
  const double winners = n / 4 / element;
  c.add("max_pool2d", layout, 1.25 * n + winners, [=] { return max_pool2d(x, windows).y; });
  c.add("max_pool2d_values", layout, 1.25 * n, [=] { return max_pool2d_values(x, windows); });
  c.add("max_pool2d_backward", layout, 1.25 * n + winners, [=, shape = x.shape()] {
    return max_pool2d_backward(quarter, maxima.winner, shape, windows);
  });
  const AvgPool2dOptions squares{.kernel = {2, 2}};
  c.add("avg_pool2d", layout, 1.25 * n, [=] { return avg_pool2d(x, squares); });
  c.add("avg_pool2d_backward", layout, 1.25 * n,
        [=, shape = x.shape()] { return avg_pool2d_backward(quarter, shape, squares); });
  c.add("adaptive_avg_pool2d", layout, n, [=] { return adaptive_avg_pool2d(x, {1, 1}); });
  c.add("adaptive_avg_pool2d_backward", layout, n,
        [shape = x.shape(), one = adaptive_avg_pool2d(x, {1, 1})] {
          return adaptive_avg_pool2d_backward(one, shape);
        });
}

void add_sizes(Cases& c, const Format& format) {
  const double n = c.whole(), bordered = n * (34.0 * 18 / 512);
  const char* const layout = format.name;
  const Tensor x = images(c, format, 32, 16), quarter = images(c, format, 16, 8);
  const InterpolateOptions larger{.size = {32, 16}, .mode = Interpolation::bilinear};
  c.add("interpolate", layout, 1.25 * n, [=] { return interpolate(quarter, larger); });
  c.add("interpolate_backward", layout, 1.25 * n,
        [=, shape = quarter.shape()] { return interpolate_backward(x, shape, larger); });
  const InterpolateOptions doubled{.size = {32, 16}};
  c.add("interpolate nearest", layout, 1.25 * n, [=] { return interpolate(quarter, doubled); });
  c.add("interpolate_backward nearest", layout, 1.25 * n,
        [=, shape = quarter.shape()] { return interpolate_backward(x, shape, doubled); });
  const PadOptions border{.padding = {1, 1, 1, 1}, .mode = PadMode::reflect};
  c.add("pad", layout, n + bordered, [=] { return pad(x, border); });
  c.add("pad_backward", layout, n + bordered,
        [=, dy = images(c, format, 34, 18), shape = x.shape()] {
          return pad_backward(dy, shape, border);
        });
}

/// Borders of any axes, and axes in another order.
void add_planes(Cases& c) {
  const double n = c.whole(), bordered = n * (34.0 * 18 / 512);
  const Tensor x = images(c, {"row-major", false}, 32, 16), dy = c.values({x.size(0), 64, 34, 18});
  const PadAxesOptions border{.amounts = {1, 1, 1, 1}};
  c.add("pad axes", "row-major", n + bordered, [=] { return pad(x, border); });
  c.add("pad_backward axes", "row-major", n + bordered,
        [=, shape = x.shape()] { return pad_backward(dy, shape, border); });
  c.add("relayout", "nchw to nhwc", 2 * n,
        [=] { return relayout(x, ImageFormat::nchw, ImageFormat::nhwc); });
  c.add("relayout", "nchw to chwn", 2 * n,
        [=] { return relayout(x, ImageFormat::nchw, ImageFormat::chwn); });
}

}  // namespace

void add_images(Cases& c) {
  if (c.rows * c.columns < 32768) return;
  for (const Format& format : {Format{"channels-last", true}, Format{"row-major", false}}) {
    add_norms(c, format);
    add_norm_parts(c, format);
    add_pools(c, format);
    add_sizes(c, format);
  }
  add_planes(c);
}

}  // namespace bs::bench

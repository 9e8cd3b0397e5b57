#include <bs/kernels/max_pool2d.h>

#include <bs/kernels/image.h>
#include <bs/kernels/pool2d_axis.h>

namespace bs {

namespace {

struct Plan {
  PoolWindows windows;
  Shape y;
};

Plan plan_of(const char* op, const Shape& x, const MaxPool2dOptions& o) {
  check_image(op, x);
  const auto& [kernel, stride, padding, dilation, ceil_mode] = o;
  const auto one_byte = [](int64_t extent) { return extent > 0 && extent <= 256; };
  BS_CHECK(one_byte(kernel.h) && one_byte(kernel.w) && kernel.h * kernel.w <= 256,
           "{}: a kernel of {} x {} does not have 1 to 256 elements", op, kernel.h, kernel.w);
  const PoolAxis rows{.in = x[2],
                      .kernel = kernel.h,
                      .stride = stride.h == 0 ? kernel.h : stride.h,
                      .padding = padding.h,
                      .dilation = dilation.h};
  const PoolAxis columns{.in = x[3],
                         .kernel = kernel.w,
                         .stride = stride.w == 0 ? kernel.w : stride.w,
                         .padding = padding.w,
                         .dilation = dilation.w};
  const int64_t p = rows.outputs(op, ceil_mode), q = columns.outputs(op, ceil_mode);
  return {{kernel, {rows.stride, columns.stride}, padding, dilation}, {x[0], x[1], p, q}};
}

/// [images, H, W, C] as it lies: of planes with one channel.
Tensor stored(const Tensor& t, bool last) {
  return last ? t.permute({0, 2, 3, 1}) : t.view({t.size(0) * t.size(1), t.size(2), t.size(3), 1});
}

MaxPool2dResult pooled(const Tensor& x, const MaxPool2dOptions& options, bool winners) {
  constexpr const char* op = "max_pool2d";
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  const Plan plan = plan_of(op, x.shape(), options);
  const Tensor in = dense_image(x);
  const bool last = is_channels_last(in);
  MaxPool2dResult r{empty_image(plan.y, x.dtype(), x.device(), last), {}};
  if (winners) r.winner = empty_image(plan.y, u8, x.device(), last);
  if (r.y.numel() > 0)
    BS_DISPATCH(x.device(), max_pool2d, plan.windows, stored(in, last), stored(r.y, last),
                winners ? stored(r.winner, last) : Tensor());
  return r;
}

}  // namespace

MaxPool2dResult max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  return pooled(x, options, true);
}

Tensor max_pool2d_values(const Tensor& x, const MaxPool2dOptions& options) {
  return pooled(x, options, false).y;
}

Tensor max_pool2d_backward(const Tensor& dy, const Tensor& winner, const Shape& x_shape,
                           const MaxPool2dOptions& options) {
  constexpr const char* op = "max_pool2d_backward";
  const Plan plan = plan_of(op, x_shape, options);
  BS_CHECK(dy.shape() == plan.y, "{}: dy {} for a result {}", op, dy.shape(), plan.y);
  BS_CHECK(winner.defined() && winner.dtype() == u8 && winner.shape() == plan.y,
           "{}: the winners are not of a result {}", op, plan.y);
  check_same_device(op, dy, winner);
  const Tensor in = dense_image(dy);
  const bool last = is_channels_last(in);
  Tensor dx = empty_image(x_shape, dy.dtype(), dy.device(), last);
  if (dx.numel() > 0)
    BS_DISPATCH(dy.device(), max_pool2d_backward, plan.windows, stored(in, last),
                stored(in_format(winner, last), last), stored(dx, last));
  return dx;
}

}  // namespace bs

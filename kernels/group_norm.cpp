#include <bs/kernels/group_norm.h>

#include <bs/kernels/channel_operands.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>

namespace bs {

using detail::channel_weight;
using detail::gradient_dtype;
using detail::image_beside;
using detail::statistics_dtype;

namespace {

void check_x(const char* op, const Tensor& x, const GroupNormOptions& options) {
  BS_CHECK(x.rank() >= 2, "{}: x {} has no axis of channels", op, x.shape());
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  BS_CHECK(options.groups > 0 && x.size(1) % options.groups == 0,
           "{}: {} groups do not divide the {} channels of x {}", op, options.groups, x.size(1),
           x.shape());
  BS_CHECK(options.eps >= 0, "{}: eps {} is negative", op, options.eps);
}

ChannelSlots slots_of(const Tensor& x, int64_t groups) {
  const int64_t channels = x.size(1), images = x.size(0);
  const int64_t pixels = channels > 0 && images > 0 ? x.numel() / (channels * images) : 0;
  const bool last = is_channels_last(x) || pixels == 1;
  return {.outer = last ? images : images * channels,
          .n = pixels,
          .inner = last ? channels : 1,
          .channels = channels,
          .neighbours = channels / groups};
}

}  // namespace

GroupNormResult group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const GroupNormOptions& options, const Tensor& residual) {
  constexpr const char* op = "group_norm";
  check_x(op, x, options);
  const Tensor in = dense_image(x);
  const Shape groups = {x.size(0), options.groups};
  GroupNormResult result{.y = empty_image_like(in),
                         .mean = Tensor::empty(groups, statistics_dtype(x), x.device()),
                         .rstd = Tensor::empty(groups, statistics_dtype(x), x.device())};
  const ChannelNorm norm{.x = in,
                         .residual = image_beside(op, in, residual),
                         .mean = result.mean,
                         .rstd = result.rstd,
                         .weight = channel_weight(op, "weight", x, weight),
                         .bias = channel_weight(op, "bias", x, bias),
                         .relu = options.relu};
  if (x.numel() == 0) return result;
  const ChannelSlots slots = slots_of(in, options.groups);
  const ChannelStatistics to{.mean = result.mean, .rstd = result.rstd, .eps = options.eps};
  BS_DISPATCH(x.device(), group_norm, slots, to, norm, result.y);
  return result;
}

GroupNormGradients group_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                       const GroupNormResult& of, const Tensor& dy,
                                       const GroupNormOptions& options, bool wants_residual) {
  constexpr const char* op = "group_norm_backward";
  check_x(op, x, options);
  check_alike(op, x, dy);
  const Shape groups = {x.size(0), options.groups};
  for (const Tensor& statistic : {of.mean, of.rstd})
    BS_CHECK(statistic.defined() && statistic.shape() == groups &&
                 statistic.dtype() == statistics_dtype(x) && statistic.device() == x.device() &&
                 statistic.is_contiguous(),
             "{}: mean and rstd are not of the forward of x {} {} on {}", op, x.dtype(), x.shape(),
             x.device());
  const Tensor in = dense_image(x);
  const DType dtype = statistics_dtype(x);
  const ChannelNorm norm{.x = in,
                         .mean = of.mean,
                         .rstd = of.rstd,
                         .weight = channel_weight(op, "weight", x, weight),
                         .bias = channel_weight(op, "bias", x, bias),
                         .relu = options.relu};
  const Tensor sums = Tensor::empty({2, x.size(1)}, gradient_dtype(x, weight, bias), x.device());
  const Tensor slope = image_beside(op, in, dy);
  GroupNormGradients gradients{.dx = empty_image_like(in)};
  // Without a ReLU the residual's gradient is dy as it came.
  if (wants_residual) gradients.dresidual = options.relu ? empty_image_like(in) : slope;
  if (x.numel() > 0) {
    const ChannelSlots slots = slots_of(in, options.groups);
    const ChannelGradient gradient{.dy = slope,
                                   .y = options.relu ? image_beside(op, in, of.y) : Tensor(),
                                   .sums = Tensor::empty({2, slots.sets()}, dtype, x.device()),
                                   .count = static_cast<double>(slots.count())};
    BS_DISPATCH(x.device(), group_norm_backward, slots, norm, gradient, sums, gradients.dx,
                options.relu ? gradients.dresidual : Tensor());
  } else {
    fill(sums, 0);
  }
  if (weight.defined()) gradients.dweight = cast(sums.select(0, 1), weight.dtype());
  if (bias.defined()) gradients.dbias = cast(sums.select(0, 0), bias.dtype());
  return gradients;
}

}  // namespace bs

#include <bs/kernels/batch_norm.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/channel_operands.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/lib/changes.h>

#include <algorithm>

namespace bs {

using detail::channel_vector;
using detail::channel_weight;
using detail::gradient_dtype;
using detail::image_beside;
using detail::statistics_dtype;

namespace {

void check_x(const char* op, const Tensor& x) {
  BS_CHECK(x.rank() >= 2, "{}: x {} has no axis of channels", op, x.shape());
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
}

ChannelSlots slots_of(const Tensor& x) {
  const int64_t channels = x.size(1);
  const int64_t pixels = channels > 0 && x.size(0) > 0 ? x.numel() / (channels * x.size(0)) : 0;
  if (is_channels_last(x) || pixels == 1)
    return {.outer = 1, .n = x.size(0) * pixels, .inner = channels, .channels = channels};
  return {.outer = x.size(0) * channels, .n = pixels, .inner = 1, .channels = channels};
}

int64_t count_of(const Tensor& x) { return x.size(1) > 0 ? x.numel() / x.size(1) : 0; }

Tensor empty_statistic(const Tensor& x) {
  return Tensor::empty({x.size(1)}, statistics_dtype(x), x.device());
}

Tensor normalise(const ChannelNorm& norm) {
  const Tensor& x = norm.x;
  Tensor y = empty_image_like(x);
  if (x.numel() > 0) BS_DISPATCH(x.device(), channel_norm, slots_of(x), norm, y);
  return y;
}

void check_options(const char* op, const BatchNormOptions& options) {
  BS_CHECK(options.eps >= 0, "{}: eps {} is negative", op, options.eps);
}

}  // namespace

BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const RunningStatistics& running, const BatchNormOptions& options,
                           const Tensor& residual) {
  constexpr const char* op = "batch_norm";
  check_x(op, x);
  check_options(op, options);
  BS_CHECK(x.numel() == 0 || count_of(x) > 1,
           "{}: x {} has one element a channel, which has no variance", op, x.shape());
  BS_CHECK(running.momentum <= 1 && (running.momentum >= 0 || running.batches.defined()),
           "{}: momentum {} is not in [0, 1]; a plain average needs the number of batches", op,
           running.momentum);
  if (running.batches.defined()) {
    BS_CHECK(running.batches.dtype() == i64 && running.batches.numel() == 1,
             "{}: the number of batches is {} {}", op, running.batches.dtype(),
             running.batches.shape());
    BS_CHECK(running.batches.device() == x.device(), "{}: the number of batches is on {}, x on {}",
             op, running.batches.device(), x.device());
  }
  const Tensor in = dense_image(x);
  const ChannelStatistics to{.mean = empty_statistic(x),
                             .rstd = empty_statistic(x),
                             .eps = options.eps,
                             .running_mean = channel_vector(op, "running mean", x, running.mean),
                             .running_var = channel_vector(op, "running var", x, running.var),
                             .batches = running.batches,
                             .momentum = running.momentum};
  if (x.numel() > 0) BS_DISPATCH(x.device(), channel_moments, slots_of(in), in, to);
  for (const Tensor& average : {running.mean, running.var, running.batches})
    note_change(average, "batch_norm");
  // Averages in 16 bits, or with gaps, were updated in a copy.
  if (running.mean.defined() && !to.running_mean.shares_storage(running.mean))
    copy(to.running_mean, running.mean);
  if (running.var.defined() && !to.running_var.shares_storage(running.var))
    copy(to.running_var, running.var);
  const Tensor y = normalise({.x = in,
                              .residual = image_beside(op, in, residual),
                              .mean = to.mean,
                              .rstd = to.rstd,
                              .weight = channel_weight(op, "weight", x, weight),
                              .bias = channel_weight(op, "bias", x, bias),
                              .relu = options.relu});
  return {y, to.mean, to.rstd};
}

BatchNormResult batch_norm_by(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const Tensor& mean, const Tensor& var,
                              const BatchNormOptions& options, const Tensor& residual) {
  constexpr const char* op = "batch_norm_by";
  check_x(op, x);
  check_options(op, options);
  BS_CHECK(mean.defined() && var.defined(), "{}: mean or var is undefined", op);
  const Tensor in = dense_image(x);
  const Tensor centre = channel_weight(op, "mean", x, mean);
  const Tensor variance = channel_weight(op, "var", x, var);
  const ChannelNorm norm{.x = in,
                         .residual = image_beside(op, in, residual),
                         .mean = empty_statistic(x),
                         .rstd = empty_statistic(x),
                         .weight = channel_weight(op, "weight", x, weight),
                         .bias = channel_weight(op, "bias", x, bias),
                         .relu = options.relu};
  const Tensor y = empty_image_like(in);
  if (x.size(1) > 0)
    BS_DISPATCH(x.device(), channel_norm_by, slots_of(in), centre, variance, options.eps, norm, y);
  return {y, norm.mean, norm.rstd};
}

namespace {

/// What both halves of backward read.
struct Prepared {
  ChannelNorm norm;
  ChannelGradient gradient;
};

Prepared prepared(const char* op, const BatchNormSaved& saved, const Tensor& dy) {
  const Tensor& x = saved.x;
  check_x(op, x);
  BS_CHECK(saved.mean.defined() && saved.rstd.defined(), "{}: mean or rstd is undefined", op);
  const Tensor in = dense_image(x);
  return {{.x = in,
           .mean = channel_vector(op, "mean", x, saved.mean),
           .rstd = channel_vector(op, "rstd", x, saved.rstd),
           .weight = channel_weight(op, "weight", x, saved.weight),
           .bias = channel_weight(op, "bias", x, saved.bias),
           .relu = saved.relu},
          {.dy = image_beside(op, in, dy),
           .y = saved.relu ? image_beside(op, in, saved.y) : Tensor(),
           .sums = {}}};
}

Tensor empty_sums(const Tensor& x, DType dtype) {
  return Tensor::empty({2, x.size(1)}, dtype, x.device());
}

/// The sums of each channel; those of the sets, weighted, go to p.gradient.sums where wanted.
Tensor sums_of(const Prepared& p, DType dtype) {
  const Tensor& x = p.norm.x;
  Tensor sums = empty_sums(x, dtype);
  if (x.numel() > 0) {
    BS_DISPATCH(x.device(), channel_norm_sums, slots_of(x), p.norm, p.gradient, sums);
  } else {
    fill(sums, 0);
  }
  return sums;
}

BatchNormGradients backward_x(const Prepared& p, bool wants_residual) {
  const Tensor& x = p.norm.x;
  BatchNormGradients gradients{.dx = empty_image_like(x)};
  // Without a ReLU the residual's gradient is dy as it came.
  if (wants_residual) gradients.dresidual = p.norm.relu ? empty_image_like(x) : p.gradient.dy;
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), channel_norm_backward, slots_of(x), p.norm, p.gradient, gradients.dx,
                p.norm.relu ? gradients.dresidual : Tensor());
  return gradients;
}

}  // namespace

BatchNormGradients batch_norm_backward(const BatchNormSaved& saved, const Tensor& dy,
                                       bool wants_residual) {
  Prepared p = prepared("batch_norm_backward", saved, dy);
  if (!saved.constant) {
    p.gradient.sums = empty_sums(saved.x, statistics_dtype(saved.x));
    p.gradient.count = static_cast<double>(count_of(saved.x));
  }
  const bool needs_sums = !saved.constant || saved.weight.defined() || saved.bias.defined();
  const Tensor sums =
      needs_sums ? sums_of(p, gradient_dtype(saved.x, saved.weight, saved.bias)) : Tensor();
  BatchNormGradients gradients = backward_x(p, wants_residual);
  if (saved.weight.defined()) gradients.dweight = cast(sums.select(0, 1), saved.weight.dtype());
  if (saved.bias.defined()) gradients.dbias = cast(sums.select(0, 0), saved.bias.dtype());
  return gradients;
}

ChannelMoments channel_moments(const Tensor& x) {
  check_x("channel_moments", x);
  const Tensor in = dense_image(x);
  const ChannelStatistics to{.mean = empty_statistic(x), .squares = empty_statistic(x)};
  if (x.numel() > 0) {
    BS_DISPATCH(x.device(), channel_moments, slots_of(in), in, to);
  } else {
    fill(to.mean, 0);
    fill(to.squares, 0);
  }
  return {to.mean, to.squares, count_of(x)};
}

ChannelMoments merge_moments(const ChannelMoments& a, const ChannelMoments& b) {
  check_alike("merge_moments", a.mean, b.mean);
  constexpr int64_t most = int64_t{1} << 62;
  BS_CHECK(std::min(a.count, b.count) >= 0 && std::max(a.count, b.count) < most,
           "merge_moments: counts {} and {}", a.count, b.count);
  if (a.count == 0) return b;
  if (b.count == 0) return a;
  const auto whole = static_cast<double>(a.count + b.count);
  const double share = static_cast<double>(b.count) / whole;
  const Tensor deviation = sub(b.mean, a.mean);
  return {add(a.mean, mul(deviation, share)),
          add(add(a.squares, b.squares),
              mul(mul(deviation, deviation), static_cast<double>(a.count) * share)),
          a.count + b.count};
}

Tensor batch_norm_backward_sums(const BatchNormSaved& saved, const Tensor& dy) {
  return sums_of(prepared("batch_norm_backward_sums", saved, dy), statistics_dtype(saved.x));
}

BatchNormGradients batch_norm_backward_x(const BatchNormSaved& saved, const Tensor& dy,
                                         const Tensor& sums, int64_t count, bool wants_residual) {
  constexpr const char* op = "batch_norm_backward_x";
  Prepared p = prepared(op, saved, dy);
  BS_CHECK(count > 0, "{}: a whole of {} elements a channel", op, count);
  BS_CHECK(sums.defined() && sums.shape() == Shape({2, saved.x.size(1)}) &&
               sums.dtype() == statistics_dtype(saved.x) && sums.device() == saved.x.device(),
           "{}: sums {} {} on {} are not of x {} {} on {}", op, sums.dtype(), sums.shape(),
           sums.device(), saved.x.dtype(), saved.x.shape(), saved.x.device());
  p.gradient.sums = contiguous(sums);
  p.gradient.weighs = true;
  p.gradient.count = static_cast<double>(count);
  return backward_x(p, wants_residual);
}

}  // namespace bs

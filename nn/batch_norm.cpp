#include <bs/nn/batch_norm.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/unary.h>

namespace bs::nn {

BatchNorm::BatchNorm(const Options& options)
    : BatchNorm(options, "batch_norm", 2, Dims::max_rank) {}

BatchNorm::BatchNorm(const Options& options, const char* name, int lowest_rank, int highest_rank)
    : name_(name),
      lowest_rank_(lowest_rank),
      highest_rank_(highest_rank),
      eps_(options.eps),
      momentum_(options.momentum),
      channels_(options.channels) {
  const auto& o = options;
  BS_CHECK(o.channels > 0, "{}: a layer of {} channels", name, o.channels);
  const Shape shape = {o.channels};
  const DType statistics = o.dtype == f64 ? f64 : f32;
  const bool tracks = o.track_running_stats;
  register_parameter("weight", weight, o.affine ? ones(shape, o.dtype, o.device) : Tensor());
  register_parameter("bias", bias, o.affine ? zeros(shape, o.dtype, o.device) : Tensor());
  register_buffer("running_mean", running_mean,
                  tracks ? zeros(shape, statistics, o.device) : Tensor(),
                  BufferDType::at_least_f32);
  register_buffer("running_var", running_var, tracks ? ones(shape, statistics, o.device) : Tensor(),
                  BufferDType::at_least_f32);
  register_buffer("num_batches_tracked", num_batches_tracked,
                  tracks ? zeros({}, i64, o.device) : Tensor());
}

void BatchNorm::fold_into(Conv2d& conv) {
  BS_CHECK(running_mean.defined(), "{}: without running statistics nothing can be folded", name_);
  const Tensor mean = running_mean.data(), var = running_var.data();
  Tensor scale = rsqrt(add(var, full({}, eps_, var.dtype(), var.device())));
  if (weight.defined()) scale = mul(scale, cast(weight.data(), var.dtype()));
  Tensor shift = neg(mul(mean, scale));
  if (bias.defined()) shift = add(shift, cast(bias.data(), var.dtype()));
  const DType dtype = conv.weight.dtype();
  conv.fold(cast(scale, dtype), cast(shift, dtype));
  fill(mean, 0);
  fill(var, 1 - eps_);
  if (weight.defined()) fill(weight.data(), 1);
  if (bias.defined()) fill(bias.data(), 0);
}

Variable BatchNorm::apply(const Variable& x, const Variable& residual, bool relu) const {
  check_not_moved(name_);
  BS_CHECK(x.rank() >= lowest_rank_ && x.rank() <= highest_rank_ && x.size(1) == channels_,
           "{}: x {} for a layer of {} channels", name_, x.shape(), channels_);
  const bs::BatchNormOptions options{.eps = eps_, .relu = relu};
  const bool tracks = running_mean.defined();
  if (!training() && tracks)
    return batch_norm_by(x, weight, bias, running_mean.data(), running_var.data(), options,
                         residual);
  RunningStatistics running;
  if (tracks)
    running = {.mean = running_mean.data(),
               .var = running_var.data(),
               .batches = num_batches_tracked.data(),
               .momentum = momentum_.value_or(-1)};
  return batch_norm(x, weight, bias, running, options, residual);
}

}  // namespace bs::nn

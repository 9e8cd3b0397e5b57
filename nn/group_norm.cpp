#include <bs/nn/group_norm.h>

#include <bs/kernels/fill.h>

namespace bs::nn {

GroupNorm::GroupNorm(const Options& options)
    : groups_(options.groups), channels_(options.channels), eps_(options.eps) {
  const auto& o = options;
  BS_CHECK(o.channels > 0 && o.groups > 0 && o.channels % o.groups == 0,
           "group_norm: {} groups do not divide {} channels", o.groups, o.channels);
  const Shape shape = {o.channels};
  register_parameter("weight", weight, o.affine ? ones(shape, o.dtype, o.device) : Tensor());
  register_parameter("bias", bias, o.affine ? zeros(shape, o.dtype, o.device) : Tensor());
}

Variable GroupNorm::apply(const Variable& x, const Variable& residual, bool relu) const {
  check_not_moved("group_norm");
  BS_CHECK(x.rank() >= 2 && x.size(1) == channels_, "group_norm: x {} for a layer of {} channels",
           x.shape(), channels_);
  return group_norm(x, weight, bias, {.groups = groups_, .eps = eps_, .relu = relu}, residual);
}

InstanceNorm::InstanceNorm(const Options& options)
    : GroupNorm({.groups = options.channels,
                 .channels = options.channels,
                 .eps = options.eps,
                 .affine = options.affine,
                 .dtype = options.dtype,
                 .device = options.device}) {}

}  // namespace bs::nn

#include <bs/nn/conv2d.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/nn/init.h>

#include <cmath>

namespace bs::nn {

namespace {

void check_channels(const char* op, int64_t in, int64_t out, Extent2 kernel, int64_t groups) {
  BS_CHECK(is_extent(in) && is_extent(out) && is_extent(kernel.h) && is_extent(kernel.w) &&
               groups > 0 && in % groups == 0 && out % groups == 0,
           "{}: a layer from {} to {} channels with a filter of {}x{} and {} groups", op, in, out,
           kernel.h, kernel.w, groups);
}

/// PyTorch's initial values.
void start(const Variable& weight, const Variable& bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight.data()).in));
  init::uniform(weight.data(), -bound, bound);
  if (bias.defined()) init::uniform(bias.data(), -bound, bound);
}

Tensor bias_of(bool wanted, int64_t out, DType dtype, Device device) {
  return wanted ? Tensor::empty({out}, dtype, device) : Tensor();
}

}  // namespace

Conv1d::Conv1d(const Options& o) : walk_(o.walk) {
  check_channels("conv1d", o.in, o.out, {1, o.kernel}, o.walk.groups);
  register_parameter("weight", weight,
                     Tensor::empty({o.out, o.in / o.walk.groups, o.kernel}, o.dtype, o.device));
  register_parameter("bias", bias, bias_of(o.bias, o.out, o.dtype, o.device));
  start(weight, bias);
}

Conv2d::Conv2d(const Options& o) : walk_(o.walk), activation_(o.activation) {
  check_channels("conv2d", o.in, o.out, o.kernel, o.walk.groups);
  register_parameter(
      "weight", weight,
      Tensor::empty({o.out, o.in / o.walk.groups, o.kernel.h, o.kernel.w}, o.dtype, o.device));
  register_parameter("bias", bias, bias_of(o.bias, o.out, o.dtype, o.device));
  start(weight, bias);
}

Variable Conv2d::forward(const Variable& x, const Variable& residual) const {
  return conv2d(x, weight, bias, walk_, activation_, residual);
}

void Conv2d::fold(const Tensor& scale, const Tensor& shift) {
  BS_CHECK(activation_ == Activation::none,
           "conv2d: the layer's {} comes before the scale and shift to fold, which must follow the "
           "sums",
           to_string(activation_));
  const Tensor w = weight.data();
  BS_CHECK(scale.shape() == Shape{w.size(0)} && shift.shape() == scale.shape(),
           "conv2d: scale {} and shift {} for a weight {}", scale.shape(), shift.shape(),
           w.shape());
  if (!bias.defined()) bias = Variable(zeros(scale.shape(), w.dtype(), w.device()), true);
  copy(mul(w, scale.view({w.size(0), 1, 1, 1})), w);
  copy(add(mul(bias.data(), scale), shift), bias.data());
}

ConvTranspose2d::ConvTranspose2d(const Options& o)
    : walk_(o.walk), output_padding_(o.output_padding) {
  check_channels("conv_transpose2d", o.in, o.out, o.kernel, o.walk.groups);
  register_parameter(
      "weight", weight,
      Tensor::empty({o.in, o.out / o.walk.groups, o.kernel.h, o.kernel.w}, o.dtype, o.device));
  register_parameter("bias", bias, bias_of(o.bias, o.out, o.dtype, o.device));
  start(weight, bias);
}

void init::fixup(std::span<const Variable> branch, int64_t branches, Generator& generator) {
  BS_CHECK(branch.size() >= 2 && branches > 0, "fixup: {} layers in each of {} branches",
           branch.size(), branches);
  const double depth = static_cast<double>(branch.size());
  const double factor = std::pow(static_cast<double>(branches), -1 / (2 * depth - 2));
  for (const Variable& weight : branch.first(branch.size() - 1)) {
    const double fan = static_cast<double>(fans(weight.data()).in);
    normal(weight.data(), 0, factor * std::sqrt(2 / fan), generator);
  }
  zeros(branch.back().data());
}

}  // namespace bs::nn

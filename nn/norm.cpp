#include <bs/nn/norm.h>

#include <bs/kernels/fill.h>

namespace bs::nn {

namespace {
/// A layer without weight and bias would take any width: it was made for one.
void check_width(const char* op, const Variable& x, int64_t width) {
  BS_CHECK(x.rank() > 0 && x.size(-1) == width, "{}: x {} for a layer of width {}", op, x.shape(),
           width);
}
}  // namespace

LayerNorm::LayerNorm(const Options& options) : eps_(options.eps), width_(options.width) {
  const auto& o = options;
  BS_CHECK(o.width > 0, "layer_norm: a layer of width {}", o.width);
  register_parameter("weight", weight, o.weight ? ones({o.width}, o.dtype, o.device) : Tensor());
  register_parameter("bias", bias, o.bias ? zeros({o.width}, o.dtype, o.device) : Tensor());
}

Variable LayerNorm::forward(const Variable& x) const {
  check_not_moved("layer_norm");
  check_width("layer_norm", x, width_);
  return layer_norm(x, weight, bias, eps_);
}

SumAndNorm LayerNorm::forward_sum(const Variable& a, const Variable& b) const {
  check_not_moved("add_layer_norm");
  check_width("add_layer_norm", a, width_);
  return add_layer_norm(a, b, weight, bias, eps_);
}

RMSNorm::RMSNorm(const Options& options) : eps_(options.eps), width_(options.width) {
  const auto& o = options;
  BS_CHECK(o.width > 0, "rms_norm: a layer of width {}", o.width);
  register_parameter("weight", weight, o.weight ? ones({o.width}, o.dtype, o.device) : Tensor());
}

Variable RMSNorm::forward(const Variable& x) const {
  check_not_moved("rms_norm");
  check_width("rms_norm", x, width_);
  return rms_norm(x, weight, eps_);
}

SumAndNorm RMSNorm::forward_sum(const Variable& a, const Variable& b) const {
  check_not_moved("add_rms_norm");
  check_width("add_rms_norm", a, width_);
  return add_rms_norm(a, b, weight, eps_);
}

}  // namespace bs::nn

#include <bs/nn/linear.h>

#include <bs/autograd/linear.h>
#include <bs/nn/init.h>

#include <cmath>

namespace bs::nn {

Linear::Linear(const Options& options) {
  const auto [in, out, has_bias, dtype, device] = options;
  BS_CHECK(is_extent(in) && is_extent(out),
           "linear: options .in = {} and .out = {} must both be positive and at most {}", in, out,
           most_features);
  register_parameter("weight", weight, Tensor::empty({out, in}, dtype, device));
  register_parameter("bias", bias, has_bias ? Tensor::empty({out}, dtype, device) : Tensor());
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  init::uniform(weight.data(), -bound, bound);
  if (has_bias) init::uniform(bias.data(), -bound, bound);
}

Variable Linear::forward(const Variable& x) const { return linear(x, weight, bias); }

}  // namespace bs::nn

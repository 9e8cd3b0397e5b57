#include <bs/autograd/pad.h>

#include <bs/autograd/recorded.h>

namespace bs {

Variable pad(const Variable& x, const PadOptions& options) {
  PadOptions zeros = options;  // a constant around x has no part in the gradient
  zeros.value = 0;
  return record_linear_pair(
      "pad", x, pad(x.data(), options), [zeros](const Tensor& t) { return pad(t, zeros); },
      [shape = x.shape(), options](const Tensor& dy) { return pad_backward(dy, shape, options); },
      GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/pad.h>

#include <bs/autograd/tape.h>

namespace bs {

Variable pad(const Variable& x, const PadOptions& options) {
  const auto backward = [shape = x.shape(), options](const Tensor& dy) {
    return Grads{pad_backward(dy, shape, options)};
  };
  return tape().record("pad", {x}, pad(x.data(), options), backward, GradientOrder::any);
}

}  // namespace bs

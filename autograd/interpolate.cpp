#include <bs/autograd/interpolate.h>

#include <bs/autograd/tape.h>

namespace bs {

Variable interpolate(const Variable& x, const InterpolateOptions& options) {
  const auto backward = [shape = x.shape(), options](const Tensor& dy) {
    return Grads{interpolate_backward(dy, shape, options)};
  };
  return tape().record("interpolate", {x}, interpolate(x.data(), options), backward,
                       GradientOrder::any);
}

}  // namespace bs

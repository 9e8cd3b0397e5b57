#include <bs/autograd/interpolate.h>

#include <bs/autograd/recorded.h>

namespace bs {

Variable interpolate(const Variable& x, const InterpolateOptions& options) {
  return record_linear_pair(
      "interpolate", x, interpolate(x.data(), options),
      [options](const Tensor& t) { return interpolate(t, options); },
      [shape = x.shape(), options](const Tensor& dy) {
        return interpolate_backward(dy, shape, options);
      },
      GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/pool2d.h>

#include <bs/autograd/tape.h>

namespace bs {

Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options) {
  MaxPool2dResult r = max_pool2d(x.data(), options);
  const auto backward = [shape = x.shape(), winner = r.winner, options](const Tensor& dy) {
    return Grads{max_pool2d_backward(dy, winner, shape, options)};
  };
  return tape().record("max_pool2d", {x}, std::move(r.y), backward, GradientOrder::any);
}

Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options) {
  const auto backward = [shape = x.shape(), options](const Tensor& dy) {
    return Grads{avg_pool2d_backward(dy, shape, options)};
  };
  return tape().record("avg_pool2d", {x}, avg_pool2d(x.data(), options), backward,
                       GradientOrder::any);
}

Variable adaptive_avg_pool2d(const Variable& x, Extent2 size) {
  const auto backward = [shape = x.shape()](const Tensor& dy) {
    return Grads{adaptive_avg_pool2d_backward(dy, shape)};
  };
  return tape().record("adaptive_avg_pool2d", {x}, adaptive_avg_pool2d(x.data(), size), backward,
                       GradientOrder::any);
}

}  // namespace bs

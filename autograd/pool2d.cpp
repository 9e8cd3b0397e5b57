#include <bs/autograd/pool2d.h>

#include <bs/autograd/recorded.h>

namespace bs {

Variable max_pool2d(const Variable& x, const MaxPool2dOptions& options) {
  MaxPool2dResult r = max_pool2d(x.data(), options);
  const auto backward = [shape = x.shape(), winner = r.winner, options](const Tensor& dy) {
    return Grads{max_pool2d_backward(dy, winner, shape, options)};
  };
  return tape().record("max_pool2d", {x}, std::move(r.y), backward, GradientOrder::any);
}

Variable avg_pool2d(const Variable& x, const AvgPool2dOptions& options) {
  return record_linear_pair(
      "avg_pool2d", x, avg_pool2d(x.data(), options),
      [options](const Tensor& t) { return avg_pool2d(t, options); },
      [shape = x.shape(), options](const Tensor& dy) {
        return avg_pool2d_backward(dy, shape, options);
      },
      GradientOrder::any);
}

Variable adaptive_avg_pool2d(const Variable& x, Extent2 size) {
  return record_linear_pair(
      "adaptive_avg_pool2d", x, adaptive_avg_pool2d(x.data(), size),
      [size](const Tensor& t) { return adaptive_avg_pool2d(t, size); },
      [shape = x.shape()](const Tensor& dy) { return adaptive_avg_pool2d_backward(dy, shape); },
      GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/rectifier.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/rectifier.h>

namespace bs {

Variable leaky_relu(const Variable& x, double slope) {
  return tape().record("leaky_relu", {x}, leaky_relu(x.data(), slope),
                       [x = SavedTensor(x.data()), slope](const Tensor& dy) {
                         return Grads{leaky_relu_backward(x, dy, slope)};
                       });
}

Variable elu(const Variable& x, double alpha) {
  return tape().record("elu", {x}, elu(x.data(), alpha),
                       [x = SavedTensor(x.data()), alpha](const Tensor& dy) {
                         return Grads{elu_backward(x, dy, alpha)};
                       });
}

Variable softplus(const Variable& x, double beta) {
  return tape().record("softplus", {x}, softplus(x.data(), beta),
                       [x = SavedTensor(x.data()), beta](const Tensor& dy) {
                         return Grads{softplus_backward(x, dy, beta)};
                       });
}

Variable mish(const Variable& x) {
  return tape().record("mish", {x}, mish(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{mish_backward(x, dy)};
  });
}

Variable hardswish(const Variable& x) {
  return tape().record(
      "hardswish", {x}, hardswish(x.data()),
      [x = SavedTensor(x.data())](const Tensor& dy) { return Grads{hardswish_backward(x, dy)}; });
}

Variable glu(const Variable& x, int axis) {
  BS_CHECK(x.size(axis) % 2 == 0, "glu: axis {} of shape {} is odd", axis, x.shape());
  const std::vector<Variable> halves = chunk(x, 2, axis);
  return halves[0] * sigmoid(halves[1]);
}

}  // namespace bs

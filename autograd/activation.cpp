#include <bs/autograd/activation.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable tanh(const Variable& x) {
  const Tensor y = tanh(x.data());
  return tape().record("tanh", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{tanh_backward(y, dy)};
  });
}

Variable sigmoid(const Variable& x) {
  const Tensor y = sigmoid(x.data());
  return tape().record("sigmoid", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{sigmoid_backward(y, dy)};
  });
}

Variable relu(const Variable& x) {
  const Tensor y = relu(x.data());
  return tape().record("relu", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{relu_backward(y, dy)};
  });
}

Variable gelu(const Variable& x, Gelu form) {
  return tape().record("gelu", {x}, gelu(x.data(), form),
                       [x = SavedTensor(x.data()), form](const Tensor& dy) {
                         return Grads{gelu_backward(x, dy, form)};
                       });
}

Variable silu(const Variable& x) {
  return tape().record("silu", {x}, silu(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{silu_backward(x, dy)};
  });
}

}  // namespace bs

#include <bs/autograd/softmax.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/softmax.h>

namespace bs {

Variable softmax(const Variable& x, int axis) {
  Tensor y = softmax(x.data(), axis);
  return tape().record("softmax", {x}, y, [y = SavedTensor(y), axis](const Tensor& dy) {
    return Grads{softmax_backward(y, dy, axis)};
  });
}

Variable log_softmax(const Variable& x, int axis) {
  Tensor y = log_softmax(x.data(), axis);
  return tape().record("log_softmax", {x}, y, [y = SavedTensor(y), axis](const Tensor& dy) {
    return Grads{log_softmax_backward(y, dy, axis)};
  });
}

}  // namespace bs

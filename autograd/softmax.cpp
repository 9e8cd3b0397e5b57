#include <bs/autograd/softmax.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/softmax.h>

namespace bs {

Variable softmax(const Variable& x) {
  Tensor y = softmax(x.data());
  return tape().record("softmax", {x}, y,
                       [y](const Tensor& dy) { return Grads{softmax_backward(y, dy)}; });
}

}  // namespace bs

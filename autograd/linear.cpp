#include <bs/autograd/linear.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/linear.h>

namespace bs {

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  const LinearWants wants{x.requires_grad(), weight.requires_grad(), bias.requires_grad()};
  const Tensor b = bias.defined() ? bias.data() : Tensor();
  return tape().record(
      "linear", {x, weight, bias}, linear(x.data(), weight.data(), b),
      [x = SavedTensor(x.data()), weight = SavedTensor(weight.data()), wants](const Tensor& dy) {
        LinearGrads grads = linear_backward(x, weight, dy, wants);
        return Grads{grads.x, grads.weight, grads.bias};
      });
}

}  // namespace bs

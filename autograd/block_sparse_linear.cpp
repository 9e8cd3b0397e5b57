#include <bs/autograd/block_sparse_linear.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable block_sparse_linear(const Variable& x, const SparseVariable& weight, const Variable& bias,
                             Activation activation) {
  const LinearWants wants{x.requires_grad(), weight.values.requires_grad(), bias.requires_grad()};
  const bool keep = wants.x || wants.weight || wants.bias;
  BlockSparseLinearResult result = block_sparse_linear(
      x.data(), weight.data(), bias.defined() ? bias.data() : Tensor(), activation, keep);
  const Tensor y = result.y;
  if (activation == Activation::none || result.before.defined()) result.y = Tensor();
  return tape().record(
      "block_sparse_linear", {x, weight.values, bias}, y,
      [x = SavedTensor(x.data()), layout = weight.layout,
       values = SavedTensor(weight.values.data()), result, activation, wants](const Tensor& dy) {
        LinearGrads grads =
            block_sparse_linear_backward(x, {layout, values}, result, dy, activation, wants);
        return Grads{grads.x, grads.weight, grads.bias};
      });
}

}  // namespace bs

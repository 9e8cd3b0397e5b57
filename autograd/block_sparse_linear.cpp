#include <bs/autograd/block_sparse_linear.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>

namespace bs {

namespace {

/// Of x, the weight's values and the bias.
struct LinearRule {
  SavedTensor x, values, bias;
  LayoutPtr layout;
  SavedTensor result;  ///< where the activation's slope is found by it
  Tensor before;
  Activation activation;
  LinearWants wants;

  Grads operator()(const Tensor& dy) const {
    LinearGrads grads =
        block_sparse_linear_backward(x, {layout, values}, {result, before}, dy, activation, wants);
    return {grads.x, grads.weight, grads.bias};
  }
  /// By a product, a sum and the activation.
  VariableGrads again(const Recorded& r) const {
    const Tensor saved[] = {x, values, bias};
    return by_definition(r, [&](std::span<const Variable> in) {
      const auto at = [&](size_t i) { return in[i].defined() ? in[i] : Variable(saved[i]); };
      const int64_t width = x.shape()[-1];
      Shape shape = x.shape();
      shape[-1] = layout->height();
      const Variable rows = reshape(at(0), {x.get().numel() / width, width});
      Variable y = dds(rows, {layout, at(1)}, {.b = true});
      if (bias.defined()) y = y + at(2);
      return reshape(activate(y, activation), shape);
    });
  }
};

}  // namespace

Variable block_sparse_linear(const Variable& x, const SparseVariable& weight, const Variable& bias,
                             Activation activation) {
  const LinearWants wants{x.requires_grad(), weight.values.requires_grad(), bias.requires_grad()};
  const bool keep = wants.x || wants.weight || wants.bias;
  const Tensor b = data_of(bias);
  BlockSparseLinearResult result =
      block_sparse_linear(x.data(), weight.data(), b, activation, keep);
  const Tensor y = result.y;
  if (activation == Activation::none || result.before.defined()) result.y = Tensor();
  return tape().record(
      "block_sparse_linear", {x, weight.values, bias}, y,
      LinearRule{SavedTensor(x.data()), SavedTensor(weight.values.data()), SavedTensor(b),
                 weight.layout, SavedTensor(result.y), result.before, activation, wants});
}

}  // namespace bs

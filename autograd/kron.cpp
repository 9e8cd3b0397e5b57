#include <bs/autograd/kron.h>

#include <bs/autograd/matmul.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>

namespace bs {

namespace {

/// The gradients of y = kron(a, b). Each needs the other matrix alone.
struct KronRule {
  Shape a_shape, b_shape;
  SavedTensor a, b;

  Grads operator()(const Tensor& dy) const {
    return {b.defined() ? kron_backward_a(a_shape, b, dy) : Tensor(),
            a.defined() ? kron_backward_b(a, b_shape, dy) : Tensor()};
  }
  VariableGrads again(const Recorded& r) const {
    const Variable cut = view(r.dy(), {a_shape[0], b_shape[0], a_shape[1], b_shape[1]});
    const Variable blocks =
        reshape(permute(cut, {0, 2, 1, 3}), {a_shape[0] * a_shape[1], b_shape[0] * b_shape[1]});
    VariableGrads grads(2);
    if (r.wants(0))
      grads[0] = view(matmul(blocks, reshape(r.input(1, b), {blocks.shape()[1], 1})), a_shape);
    if (r.wants(1))
      grads[1] = view(
          matmul(transpose(blocks, 0, 1), reshape(r.input(0, a), {blocks.shape()[0], 1})), b_shape);
    return grads;
  }
};

}  // namespace

Variable kron_matmul(const Variable& x, const std::vector<Variable>& factors, const Variable& bias,
                     const KronOptions& options) {
  std::vector<Variable> inputs = {x};
  inputs.insert(inputs.end(), factors.begin(), factors.end());
  inputs.push_back(bias);
  KronWants wants{.x = x.requires_grad(), .bias = bias.requires_grad()};
  std::vector<Tensor> weights;
  bool any = wants.x || wants.bias;
  for (const Variable& f : factors) {
    weights.push_back(f.data());
    wants.factors.push_back(f.requires_grad());
    any = any || f.requires_grad();
  }
  const Tensor b = data_of(bias);
  if (!any || !grad_enabled()) return kron_matmul(x.data(), weights, b, options);
  KronResult result = kron_matmul_kept(x.data(), weights, b, options);
  const Tensor y = result.y;
  if (options.activation == Activation::none || result.before.defined()) result.y = Tensor();
  std::vector<Variable> watched = inputs;
  watched.push_back(result.y);
  return tape().record("kron_matmul", inputs, y,
                       [x = x.data(), saved = SavedInputs(watched), weights, result, options,
                        wants](const Tensor& dy) {
                         saved.check();
                         KronGrads grads =
                             kron_matmul_backward(x, weights, result, dy, options, wants);
                         Grads all = {grads.x};
                         all.insert(all.end(), grads.factors.begin(), grads.factors.end());
                         all.push_back(grads.bias);
                         return all;
                       });
}

Variable kron(const Variable& a, const Variable& b) {
  return tape().record("kron", {a, b}, kron(a.data(), b.data()),
                       KronRule{a.shape(), b.shape(), saved_factor(a, b), saved_factor(b, a)});
}

}  // namespace bs

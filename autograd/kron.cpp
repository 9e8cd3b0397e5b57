#include <bs/autograd/kron.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

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
  const Tensor b = bias.defined() ? bias.data() : Tensor();
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

}  // namespace bs

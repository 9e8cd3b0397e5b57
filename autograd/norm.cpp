#include <bs/autograd/norm.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/norm.h>

namespace bs {

namespace {
Tensor data_of(const Variable& v) { return v.defined() ? v.data() : Tensor(); }
}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = layer_norm(x.data(), w, data_of(bias), eps);
  return tape().record("layer_norm", {x, weight, bias}, std::move(r.y),
                       [x = x.data(), w, mean = r.mean, rstd = r.rstd,
                        wants_bias = bias.requires_grad()](const Tensor& dy) {
                         NormGradients g = layer_norm_backward(x, w, mean, rstd, dy, wants_bias);
                         return Grads{g.dx, g.dweight, g.dbias};
                       });
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = rms_norm(x.data(), w, eps);
  return tape().record("rms_norm", {x, weight}, std::move(r.y),
                       [x = x.data(), w, rstd = r.rstd](const Tensor& dy) {
                         NormGradients g = rms_norm_backward(x, w, rstd, dy);
                         return Grads{g.dx, g.dweight};
                       });
}

}  // namespace bs

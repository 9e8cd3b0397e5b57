#include <bs/autograd/norm.h>
#include <bs/autograd/saved_tensor.h>
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
                       [x = SavedTensor(x.data()), w = SavedTensor(w), mean = r.mean, rstd = r.rstd,
                        wants_bias = bias.requires_grad()](const Tensor& dy) {
                         NormGradients g = layer_norm_backward(x, w, mean, rstd, dy, wants_bias);
                         return Grads{g.dx, g.dweight, g.dbias};
                       });
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = rms_norm(x.data(), w, eps);
  return tape().record(
      "rms_norm", {x, weight}, std::move(r.y),
      [x = SavedTensor(x.data()), w = SavedTensor(w), rstd = r.rstd](const Tensor& dy) {
        NormGradients g = rms_norm_backward(x, w, rstd, dy);
        return Grads{g.dx, g.dweight};
      });
}

SumAndNorm add_layer_norm(const Variable& a, const Variable& b, const Variable& weight,
                          const Variable& bias, double eps) {
  const Tensor w = data_of(weight);
  NormResult r = b.defined() ? add_layer_norm(a.data(), b.data(), w, data_of(bias), eps)
                             : layer_norm(a.data(), w, data_of(bias), eps);
  if (!b.defined()) r.sum = a.data();
  const Variable inputs[] = {a, b, weight, bias};
  const std::vector<Variable> y = tape().record_many(
      "add_layer_norm", inputs, {r.sum, r.y},
      [x = SavedTensor(r.sum), w = SavedTensor(w), mean = r.mean, rstd = r.rstd,
       wants_bias = bias.requires_grad()](const Grads& dys) {
        if (!dys[1].defined()) return Grads{dys[0], dys[0], {}, {}};
        NormGradients g = layer_norm_backward(x, w, mean, rstd, dys[1], wants_bias, dys[0]);
        return Grads{g.dx, g.dx, g.dweight, g.dbias};
      });
  return {y[0], y[1]};
}

SumAndNorm add_rms_norm(const Variable& a, const Variable& b, const Variable& weight, double eps) {
  const Tensor w = data_of(weight);
  NormResult r =
      b.defined() ? add_rms_norm(a.data(), b.data(), w, eps) : rms_norm(a.data(), w, eps);
  if (!b.defined()) r.sum = a.data();
  const Variable inputs[] = {a, b, weight};
  const std::vector<Variable> y = tape().record_many(
      "add_rms_norm", inputs, {r.sum, r.y},
      [x = SavedTensor(r.sum), w = SavedTensor(w), rstd = r.rstd](const Grads& dys) {
        if (!dys[1].defined()) return Grads{dys[0], dys[0], {}};
        NormGradients g = rms_norm_backward(x, w, rstd, dys[1], dys[0]);
        return Grads{g.dx, g.dx, g.dweight};
      });
  return {y[0], y[1]};
}

}  // namespace bs

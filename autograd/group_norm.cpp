#include <bs/autograd/group_norm.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

Tensor data_of(const Variable& v) { return v.defined() ? v.data() : Tensor(); }

}  // namespace

Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options, const Variable& residual) {
  const Tensor w = data_of(weight), b = data_of(bias);
  const GroupNormResult r = group_norm(x.data(), w, b, options, data_of(residual));
  const Tensor hidden = options.relu && residual.defined() ? r.y : Tensor();
  return tape().record(
      "group_norm", {x, weight, bias, residual}, r.y,
      [x = SavedTensor(x.data()), w = SavedTensor(w), b = SavedTensor(b), y = SavedTensor(hidden),
       mean = r.mean, rstd = r.rstd, options,
       wants_residual = residual.requires_grad()](const Tensor& dy) {
        GroupNormGradients g = group_norm_backward(x, w, b, {.y = y, .mean = mean, .rstd = rstd},
                                                   dy, options, wants_residual);
        return Grads{g.dx, g.dweight, g.dbias, g.dresidual};
      },
      GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/group_norm.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options) {
  const Tensor w = weight.defined() ? weight.data() : Tensor();
  const Tensor b = bias.defined() ? bias.data() : Tensor();
  const GroupNormResult r = group_norm(x.data(), w, b, options);
  const GroupNormResult kept{.y = {}, .mean = r.mean, .rstd = r.rstd};
  return tape().record(
      "group_norm", {x, weight, bias}, r.y,
      [x = SavedTensor(x.data()), w = SavedTensor(w), b = SavedTensor(b), kept,
       options](const Tensor& dy) {
        GroupNormGradients g = group_norm_backward(x, w, b, kept, dy, options);
        return Grads{g.dx, g.dweight, g.dbias};
      },
      GradientOrder::any);
}

}  // namespace bs

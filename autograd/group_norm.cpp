#include <bs/autograd/group_norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/channel_norm.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/view.h>

namespace bs {

namespace {

/// Of x, weight, bias and residual.
struct NormRule {
  SavedTensor x, weight, bias;
  SavedTensor y;  ///< where a residual hides its sign
  Tensor mean, rstd;
  GroupNormOptions options;
  bool wants_residual;

  Grads operator()(const Tensor& dy) const {
    GroupNormGradients g = group_norm_backward(
        x, weight, bias, {.y = y, .mean = mean, .rstd = rstd}, dy, options, wants_residual);
    return {g.dx, g.dweight, g.dbias, g.dresidual};
  }
  /// By the norm in simple operations.
  VariableGrads again(const Recorded& r) const {
    return by_definition(r, [&](std::span<const Variable> in) {
      const Variable from = cast(in[0].defined() ? in[0] : Variable(x.get()), mean.dtype());
      const int64_t groups = from.size(0) * options.groups;
      const Variable rows = reshape(from, {groups, from.data().numel() / groups});
      const Variable centred = rows - bs::mean(rows, -1, true);
      const Variable h = centred * bs::rsqrt(bs::mean(centred * centred, -1, true) + options.eps);
      return affine_channels(
          reshape(h, from.shape()), in,
          {.weight = weight.get(), .bias = bias.get(), .y = y.get(), .relu = options.relu},
          x.dtype());
    });
  }
};

}  // namespace

Variable group_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const GroupNormOptions& options, const Variable& residual) {
  const Tensor w = data_of(weight), b = data_of(bias);
  const GroupNormResult r = group_norm(x.data(), w, b, options, data_of(residual));
  const Tensor hidden = options.relu && residual.defined() ? r.y : Tensor();
  return tape().record(
      "group_norm", {x, weight, bias, residual}, r.y,
      NormRule{SavedTensor(x.data()), SavedTensor(w), SavedTensor(b), SavedTensor(hidden), r.mean,
               r.rstd, options, residual.requires_grad()},
      GradientOrder::any);
}

}  // namespace bs

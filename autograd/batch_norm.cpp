#include <bs/autograd/batch_norm.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/channel_norm.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>

namespace bs {

namespace {

struct Inputs {
  const Variable &x, &weight, &bias, &residual;
};

/// Of x, weight, bias and residual.
struct NormRule {
  BatchNormSaved saved;
  SavedInputs inputs;
  SavedTensor y;
  double eps;
  bool wants_residual;

  Grads operator()(const Tensor& dy) const {
    inputs.check();
    static_cast<void>(y.get());
    BatchNormGradients g = batch_norm_backward(saved, dy, wants_residual);
    return {g.dx, g.dweight, g.dbias, g.dresidual};
  }
  /// By the norm in simple operations.
  VariableGrads again(const Recorded& r) const {
    inputs.check();
    return by_definition(r, [&](std::span<const Variable> in) {
      const Variable x = cast(in[0].defined() ? in[0] : Variable(saved.x), saved.mean.dtype());
      return affine_channels(
          normalised(x), in,
          {.weight = saved.weight, .bias = saved.bias, .y = saved.y, .relu = saved.relu},
          saved.x.dtype());
    });
  }

 private:
  Variable normalised(const Variable& x) const {
    Shape channels = Shape::filled(x.rank() - 1, 1);
    channels[0] = x.size(1);
    if (saved.constant) return (x - saved.mean.view(channels)) * saved.rstd.view(channels);
    Dims axes;
    for (int axis = 0; axis < x.rank(); ++axis)
      if (axis != 1) axes.push_back(axis);
    const Variable centred = x - mean(x, axes, true);
    return centred * rsqrt(mean(centred * centred, axes, true) + eps);
  }
};

Variable record_norm(const char* name, const Inputs& in, BatchNormResult r, bool relu, double eps,
                     bool constant) {
  const bool hides_sign = relu && in.residual.defined();
  BatchNormSaved saved{.x = in.x.data(),
                       .weight = data_of(in.weight),
                       .bias = data_of(in.bias),
                       .mean = r.mean,
                       .rstd = r.rstd,
                       .y = hides_sign ? r.y : Tensor(),
                       .relu = relu,
                       .constant = constant};
  const Tensor hidden = saved.y;
  const Variable inputs[] = {in.x, in.weight, in.bias};
  return tape().record(name, {in.x, in.weight, in.bias, in.residual}, std::move(r.y),
                       NormRule{std::move(saved), SavedInputs(inputs), SavedTensor(hidden), eps,
                                in.residual.requires_grad()},
                       GradientOrder::any);
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const RunningStatistics& running, const BatchNormOptions& options,
                    const Variable& residual) {
  BatchNormResult r =
      batch_norm(x.data(), data_of(weight), data_of(bias), running, options, data_of(residual));
  return record_norm("batch_norm", {x, weight, bias, residual}, std::move(r), options.relu,
                     options.eps, false);
}

Variable batch_norm_by(const Variable& x, const Variable& weight, const Variable& bias,
                       const Tensor& mean, const Tensor& var, const BatchNormOptions& options,
                       const Variable& residual) {
  BatchNormResult r = batch_norm_by(x.data(), data_of(weight), data_of(bias), mean, var, options,
                                    data_of(residual));
  return record_norm("batch_norm_by", {x, weight, bias, residual}, std::move(r), options.relu,
                     options.eps, true);
}

}  // namespace bs

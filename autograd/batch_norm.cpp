#include <bs/autograd/batch_norm.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

Tensor data_of(const Variable& v) { return v.defined() ? v.data() : Tensor(); }

struct Inputs {
  const Variable &x, &weight, &bias, &residual;
};

Variable record_norm(const char* name, const Inputs& in, BatchNormResult r, bool relu,
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
  return tape().record(
      name, {in.x, in.weight, in.bias, in.residual}, std::move(r.y),
      [saved = std::move(saved), inputs = SavedInputs(inputs), y = SavedTensor(hidden),
       wants_residual = in.residual.requires_grad()](const Tensor& dy) {
        inputs.check();
        static_cast<void>(y.get());
        BatchNormGradients g = batch_norm_backward(saved, dy, wants_residual);
        return Grads{g.dx, g.dweight, g.dbias, g.dresidual};
      },
      GradientOrder::any);
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const RunningStatistics& running, const BatchNormOptions& options,
                    const Variable& residual) {
  BatchNormResult r =
      batch_norm(x.data(), data_of(weight), data_of(bias), running, options, data_of(residual));
  return record_norm("batch_norm", {x, weight, bias, residual}, std::move(r), options.relu, false);
}

Variable batch_norm_by(const Variable& x, const Variable& weight, const Variable& bias,
                       const Tensor& mean, const Tensor& var, const BatchNormOptions& options,
                       const Variable& residual) {
  BatchNormResult r = batch_norm_by(x.data(), data_of(weight), data_of(bias), mean, var, options,
                                    data_of(residual));
  return record_norm("batch_norm_by", {x, weight, bias, residual}, std::move(r), options.relu,
                     true);
}

}  // namespace bs

#include <bs/autograd/grad.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

/// The gradient 1 of a single number, for the function `caller`.
Tensor one_for(const char* caller, const Variable& output) {
  BS_CHECK(output.numel(caller) == 1,
           "{}: shape {} is no single number; reduce it with sum or mean, or give a gradient",
           caller, output.shape());
  return full(output.shape(), 1.0, output.dtype(), output.device());
}

}  // namespace

Grads grad(const Variable& output, std::span<const Variable> inputs, BackwardOptions options) {
  return grad(output, inputs, one_for("grad", output), options);
}

Grads grad(const Variable& output, std::span<const Variable> inputs, const Tensor& gradient,
           BackwardOptions options) {
  BS_CHECK(output.requires_grad(), "grad: the output requires no gradient");
  BS_CHECK(gradient.defined(), "grad: the gradient to start from is undefined");
  return tape().gradients({&output, 1}, inputs, {&gradient, 1}, options);
}

Grads grad(std::span<const Variable> outputs, std::span<const Variable> inputs,
           std::span<const Tensor> gradients, BackwardOptions options) {
  BS_CHECK(!outputs.empty(), "grad: no outputs");
  BS_CHECK(gradients.empty() || gradients.size() == outputs.size(),
           "grad: {} gradients for {} outputs", gradients.size(), outputs.size());
  Grads starts(gradients.begin(), gradients.end());
  starts.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!starts[i].defined()) starts[i] = one_for("grad", outputs[i]);
  return tape().gradients(outputs, inputs, starts, options);
}

VariableGrads differentiable_grad(std::span<const Variable> outputs,
                                  std::span<const Variable> inputs,
                                  std::span<const Variable> gradients) {
  BS_CHECK(!outputs.empty(), "differentiable_grad: no outputs");
  BS_CHECK(gradients.empty() || gradients.size() == outputs.size(),
           "differentiable_grad: {} gradients for {} outputs", gradients.size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    BS_CHECK(outputs[i].requires_grad(), "differentiable_grad: output {} requires no gradient", i);
  for (size_t i = 0; i < inputs.size(); ++i)
    BS_CHECK(inputs[i].requires_grad(), "differentiable_grad: input {} requires no gradient", i);
  VariableGrads starts(gradients.begin(), gradients.end());
  starts.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!starts[i].defined()) starts[i] = Variable(one_for("differentiable_grad", outputs[i]));
  return tape().recorded_gradients(outputs, inputs, starts);
}

}  // namespace bs

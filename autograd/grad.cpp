#include <bs/autograd/grad.h>
#include <bs/kernels/fill.h>

namespace bs {

Grads grad(const Variable& output, std::span<const Variable> inputs, BackwardOptions options) {
  BS_CHECK(output.data().numel() == 1,
           "grad: shape {} is no single number; reduce it with sum or mean, or give a gradient",
           output.shape());
  return grad(output, inputs, full(output.shape(), 1.0, output.dtype(), output.device()), options);
}

Grads grad(const Variable& output, std::span<const Variable> inputs, const Tensor& gradient,
           BackwardOptions options) {
  return tape().gradients(output, inputs, gradient, options);
}

}  // namespace bs

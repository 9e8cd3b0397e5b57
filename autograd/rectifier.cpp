#include <bs/autograd/rectifier.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/binary.h>
#include <bs/autograd/concat.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/unary.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/rectifier.h>

namespace bs {

Variable leaky_relu(const Variable& x, double slope) {
  return record_chosen("leaky_relu", x, leaky_relu(x.data(), slope),
                       [x = SavedTensor(x.data()), slope](const Tensor& dy) {
                         return leaky_relu_backward(x, dy, slope);
                       });
}

Variable elu(const Variable& x, double alpha) {
  return tape().record(
      "elu", {x}, elu(x.data(), alpha),
      Twice{[x = SavedTensor(x.data()), alpha](const Tensor& dy) {
              return Grads{elu_backward(x, dy, alpha)};
            },
            [alpha](const Recorded& r) {
              const Variable below = exp(minimum(r.input(), 0)) * alpha;
              return VariableGrads{r.dy() * where(gt(r.input().data(), 0), 1, below)};
            }});
}

Variable softplus(const Variable& x, double beta) {
  return tape().record("softplus", {x}, softplus(x.data(), beta),
                       Twice{[x = SavedTensor(x.data()), beta](const Tensor& dy) {
                               return Grads{softplus_backward(x, dy, beta)};
                             },
                             [beta](const Recorded& r) {
                               return VariableGrads{r.dy() * sigmoid(r.input() * beta)};
                             }});
}

Variable mish(const Variable& x) {
  return tape().record(
      "mish", {x}, mish(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{mish_backward(x, dy)}; },
            [](const Recorded& r) {
              return by_definition(
                  r, [](std::span<const Variable> in) { return in[0] * tanh(softplus(in[0])); });
            }});
}

Variable hardswish(const Variable& x) {
  return tape().record("hardswish", {x}, hardswish(x.data()),
                       Twice{[x = SavedTensor(x.data())](const Tensor& dy) {
                               return Grads{hardswish_backward(x, dy)};
                             },
                             [](const Recorded& r) {
                               return by_definition(r, [](std::span<const Variable> in) {
                                 return in[0] * clamp(in[0] + 3, 0, 6) / 6;
                               });
                             }});
}

Variable glu(const Variable& x, int axis) {
  BS_CHECK(x.size(axis) % 2 == 0, "glu: axis {} of shape {} is odd", axis, x.shape());
  const std::vector<Variable> halves = chunk(x, 2, axis);
  return halves[0] * sigmoid(halves[1]);
}

}  // namespace bs

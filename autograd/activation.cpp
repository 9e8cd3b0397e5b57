#include <bs/autograd/activation.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/elementary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/unary.h>

#include <numbers>

namespace bs {

Variable tanh(const Variable& x) {
  const Tensor y = tanh(x.data());
  return tape().record(
      "tanh", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{tanh_backward(y, dy)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * (1 - r.y() * r.y())}; }});
}

Variable sigmoid(const Variable& x) {
  const Tensor y = sigmoid(x.data());
  return tape().record(
      "sigmoid", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{sigmoid_backward(y, dy)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * (r.y() * (1 - r.y()))}; }});
}

Variable relu(const Variable& x) {
  const Tensor y = relu(x.data());
  return record_chosen("relu", x, y,
                       [y = SavedTensor(y)](const Tensor& dy) { return relu_backward(y, dy); });
}

namespace {

Variable slope_of_gelu(const Variable& x) {
  const Variable density = exp(x * x * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  return (erf(x / std::numbers::sqrt2) + 1) * 0.5 + x * density;
}

Variable gelu_by_tanh(const Variable& x) {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return x * (tanh((x + x * x * x * 0.044715) * scale) + 1) * 0.5;
}

}  // namespace

Variable gelu(const Variable& x, Gelu form) {
  return tape().record("gelu", {x}, gelu(x.data(), form),
                       Twice{[x = SavedTensor(x.data()), form](const Tensor& dy) {
                               return Grads{gelu_backward(x, dy, form)};
                             },
                             [form](const Recorded& r) {
                               if (form == Gelu::erf)
                                 return VariableGrads{r.dy() * slope_of_gelu(r.input())};
                               return by_definition(r, [](std::span<const Variable> in) {
                                 return gelu_by_tanh(in[0]);
                               });
                             }});
}

Variable silu(const Variable& x) {
  return tape().record(
      "silu", {x}, silu(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{silu_backward(x, dy)}; },
            [](const Recorded& r) {
              const Variable s = sigmoid(r.input());
              return VariableGrads{r.dy() * (s * (r.input() * (1 - s) + 1))};
            }});
}

Variable activate(const Variable& x, Activation f) {
  switch (f) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu(x);
    case Activation::tanh:
      return tanh(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::silu:
      return silu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu(x, Gelu::tanh);
  }
  BS_THROW(Error, "activate: no such activation: {}", static_cast<int>(f));
}

}  // namespace bs

#include <bs/autograd/unary.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/unary.h>

namespace bs {

Variable neg(const Variable& x) {
  return record_linear("neg", x, neg(x.data()), [](const auto& dy) { return -dy; });
}

Variable abs(const Variable& x) {
  return record_chosen("abs", x, abs(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return abs_backward(x, dy);
  });
}

Variable exp(const Variable& x) {
  const Tensor y = exp(x.data());
  return tape().record("exp", {x}, y,
                       Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{dy * y}; },
                             [](const Recorded& r) { return VariableGrads{r.dy() * r.y()}; }});
}

Variable log(const Variable& x) {
  return tape().record(
      "log", {x}, log(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy / x}; },
            [](const Recorded& r) { return VariableGrads{r.dy() / r.input()}; }});
}

Variable sqrt(const Variable& x) {
  const Tensor y = sqrt(x.data());
  return tape().record(
      "sqrt", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{sqrt_backward(y, dy)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * 0.5 / r.y()}; }});
}

Variable rsqrt(const Variable& x) {
  const Tensor y = rsqrt(x.data());
  return tape().record(
      "rsqrt", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{rsqrt_backward(y, dy)}; },
            [](const Recorded& r) {
              return VariableGrads{r.dy() * -0.5 * (r.y() * r.y() * r.y())};
            }});
}

Variable reciprocal(const Variable& x) {
  const Tensor y = reciprocal(x.data());
  return tape().record(
      "reciprocal", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{reciprocal_backward(y, dy)}; },
            [](const Recorded& r) { return VariableGrads{-r.dy() * (r.y() * r.y())}; }});
}

Variable clamp(const Variable& x, double low, double high) {
  return record_chosen("clamp", x, clamp(x.data(), low, high),
                       [x = SavedTensor(x.data()), low, high](const Tensor& dy) {
                         return clamp_backward(x, dy, low, high);
                       });
}

}  // namespace bs

#include <bs/autograd/elementary.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/unary.h>

#include <numbers>

namespace bs {

Variable sin(const Variable& x) {
  return tape().record(
      "sin", {x}, sin(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy * cos(x)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * cos(r.input())}; }});
}

Variable cos(const Variable& x) {
  return tape().record(
      "cos", {x}, cos(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{-(dy * sin(x))}; },
            [](const Recorded& r) { return VariableGrads{-(r.dy() * sin(r.input()))}; }});
}

Variable tan(const Variable& x) {
  const Tensor y = tan(x.data());
  return tape().record(
      "tan", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{tan_backward(y, dy)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * (r.y() * r.y() + 1)}; }});
}

Variable erf(const Variable& x) {
  constexpr double factor = 2 * std::numbers::inv_sqrtpi;
  return tape().record(
      "erf", {x}, erf(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{erf_backward(x, dy)}; },
            [](const Recorded& r) {
              return VariableGrads{r.dy() * (exp(-(r.input() * r.input())) * factor)};
            }});
}

Variable log1p(const Variable& x) {
  return tape().record(
      "log1p", {x}, log1p(x.data()),
      Twice{[x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy / (x + 1)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() / (r.input() + 1)}; }});
}

Variable expm1(const Variable& x) {
  const Tensor y = expm1(x.data());
  return tape().record(
      "expm1", {x}, y,
      Twice{[y = SavedTensor(y)](const Tensor& dy) { return Grads{dy * (y + 1)}; },
            [](const Recorded& r) { return VariableGrads{r.dy() * (r.y() + 1)}; }});
}

}  // namespace bs

#include <bs/autograd/elementary.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/unary.h>

namespace bs {

Variable sin(const Variable& x) {
  return tape().record("sin", {x}, sin(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{dy * cos(x)};
  });
}

Variable cos(const Variable& x) {
  return tape().record("cos", {x}, cos(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{-(dy * sin(x))};
  });
}

Variable tan(const Variable& x) {
  const Tensor y = tan(x.data());
  return tape().record(
      "tan", {x}, y, [y = SavedTensor(y)](const Tensor& dy) { return Grads{tan_backward(y, dy)}; });
}

Variable erf(const Variable& x) {
  return tape().record("erf", {x}, erf(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{erf_backward(x, dy)};
  });
}

Variable log1p(const Variable& x) {
  return tape().record(
      "log1p", {x}, log1p(x.data()),
      [x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy / (x + 1)}; });
}

Variable expm1(const Variable& x) {
  const Tensor y = expm1(x.data());
  return tape().record("expm1", {x}, y,
                       [y = SavedTensor(y)](const Tensor& dy) { return Grads{dy * (y + 1)}; });
}

}  // namespace bs

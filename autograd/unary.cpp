#include <bs/autograd/unary.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/unary.h>

namespace bs {

Variable neg(const Variable& x) {
  return tape().record("neg", {x}, neg(x.data()), [](const Tensor& dy) { return Grads{-dy}; });
}

Variable abs(const Variable& x) {
  return tape().record("abs", {x}, abs(x.data()), [x = SavedTensor(x.data())](const Tensor& dy) {
    return Grads{abs_backward(x, dy)};
  });
}

Variable exp(const Variable& x) {
  const Tensor y = exp(x.data());
  return tape().record("exp", {x}, y,
                       [y = SavedTensor(y)](const Tensor& dy) { return Grads{dy * y}; });
}

Variable log(const Variable& x) {
  return tape().record("log", {x}, log(x.data()),
                       [x = SavedTensor(x.data())](const Tensor& dy) { return Grads{dy / x}; });
}

Variable sqrt(const Variable& x) {
  const Tensor y = sqrt(x.data());
  return tape().record("sqrt", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{sqrt_backward(y, dy)};
  });
}

Variable rsqrt(const Variable& x) {
  const Tensor y = rsqrt(x.data());
  return tape().record("rsqrt", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{rsqrt_backward(y, dy)};
  });
}

Variable reciprocal(const Variable& x) {
  const Tensor y = reciprocal(x.data());
  return tape().record("reciprocal", {x}, y, [y = SavedTensor(y)](const Tensor& dy) {
    return Grads{reciprocal_backward(y, dy)};
  });
}

Variable clamp(const Variable& x, double low, double high) {
  return tape().record("clamp", {x}, clamp(x.data(), low, high),
                       [x = SavedTensor(x.data()), low, high](const Tensor& dy) {
                         return Grads{clamp_backward(x, dy, low, high)};
                       });
}

}  // namespace bs

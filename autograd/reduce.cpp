#include <bs/autograd/reduce.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable sum(const Variable& x, const Axes& axes, bool keepdim) {
  return tape().record("sum", {x}, sum(x.data(), axes, keepdim),
                       [shape = x.shape(), axes, keepdim](const Tensor& dy) {
                         return Grads{sum_backward(shape, dy, axes, keepdim)};
                       });
}

Variable mean(const Variable& x, const Axes& axes, bool keepdim) {
  return tape().record("mean", {x}, mean(x.data(), axes, keepdim),
                       [shape = x.shape(), axes, keepdim](const Tensor& dy) {
                         return Grads{mean_backward(shape, dy, axes, keepdim)};
                       });
}

Variable var(const Variable& x, const Axes& axes, bool keepdim, double correction) {
  return tape().record("var", {x}, var(x.data(), axes, keepdim, correction),
                       [x = SavedTensor(x.data()), axes, keepdim, correction](const Tensor& dy) {
                         return Grads{var_backward(x, dy, axes, keepdim, correction)};
                       });
}

Variable stddev(const Variable& x, const Axes& axes, bool keepdim, double correction) {
  const Tensor y = stddev(x.data(), axes, keepdim, correction);
  return tape().record(
      "stddev", {x}, y,
      [x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim, correction](const Tensor& dy) {
        return Grads{stddev_backward(x, y, dy, axes, keepdim, correction)};
      });
}

namespace {
Variable record_extremum(const char* name, const Variable& x, const Tensor& y, const Axes& axes,
                         bool keepdim) {
  return tape().record(
      name, {x}, y,
      [x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim](const Tensor& dy) {
        return Grads{extremum_backward(x, y, dy, axes, keepdim)};
      });
}
}  // namespace

Variable amax(const Variable& x, const Axes& axes, bool keepdim) {
  return record_extremum("amax", x, amax(x.data(), axes, keepdim), axes, keepdim);
}

Variable amin(const Variable& x, const Axes& axes, bool keepdim) {
  return record_extremum("amin", x, amin(x.data(), axes, keepdim), axes, keepdim);
}

}  // namespace bs

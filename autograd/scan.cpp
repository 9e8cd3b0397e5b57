#include <bs/autograd/scan.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/autograd/view.h>
#include <bs/kernels/scan.h>

namespace bs {

Variable cumsum(const Variable& x, int axis) {
  return tape().record("cumsum", {x}, cumsum(x.data(), axis),
                       [axis](const Tensor& dy) { return Grads{cumsum(dy, axis, true)}; });
}

Variable cumprod(const Variable& x, int axis) {
  const Tensor y = cumprod(x.data(), axis);
  return tape().record("cumprod", {x}, y,
                       [x = SavedTensor(x.data()), y = SavedTensor(y), axis](const Tensor& dy) {
                         return Grads{cumprod_backward(x, y, dy, axis)};
                       });
}

Variable prod(const Variable& x, int axis, bool keepdim) {
  const int at = normalize_axis("prod", axis, x.rank());
  const int64_t n = x.size(at);
  if (n == 0) return prod(x.data(), at, keepdim);
  const Variable running = cumprod(x, at);
  return keepdim ? slice(running, at, n - 1, n) : select(running, at, n - 1);
}

}  // namespace bs

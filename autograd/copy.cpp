#include <bs/autograd/copy.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>

namespace bs {

Variable contiguous(const Variable& x) {
  if (x.data().is_contiguous()) return x;
  return tape().record("contiguous", {x}, contiguous(x.data()),
                       [](const Tensor& dy) { return Grads{dy}; });
}

Variable clone(const Variable& x) {
  return tape().record("clone", {x}, clone(x.data()), [](const Tensor& dy) { return Grads{dy}; });
}

Variable Variable::clone() const { return bs::clone(*this); }

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  BS_CHECK(is_floating(dtype) || !x.requires_grad(),
           "cast: from {} to {} with a gradient; detach first", x.dtype(), dtype);
  return tape().record("cast", {x}, cast(x.data(), dtype),
                       [from = x.dtype()](const Tensor& dy) { return Grads{cast(dy, from)}; });
}

Variable to(const Variable& x, Device device) {
  if (x.device() == device) return x;
  return tape().record("to", {x}, to(x.data(), device),
                       [from = x.device()](const Tensor& dy) { return Grads{to(dy, from)}; });
}

}  // namespace bs

#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/copy.h>

namespace bs {

Variable contiguous(const Variable& x) {
  if (x.data().is_contiguous()) return x;
  return record_linear("contiguous", x, contiguous(x.data()), [](const auto& dy) { return dy; });
}

Variable clone(const Variable& x) {
  return record_linear("clone", x, clone(x.data()), [](const auto& dy) { return dy; });
}

Variable Variable::clone() const { return bs::clone(*this); }

Variable cast(const Variable& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  BS_CHECK(is_floating(dtype) || !x.requires_grad(),
           "cast: from {} to {} with a gradient; detach first", x.dtype(), dtype);
  return record_linear("cast", x, cast(x.data(), dtype),
                       [from = x.dtype()](const auto& dy) { return cast(dy, from); });
}

Variable to(const Variable& x, Device device) {
  if (x.device() == device) return x;
  return record_linear("to", x, to(x.data(), device),
                       [from = x.device()](const auto& dy) { return to(dy, from); });
}

}  // namespace bs

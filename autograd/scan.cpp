#include <bs/autograd/scan.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/kernels/scan.h>

namespace bs {

namespace {

/// Sums up to each element, or from it on.
struct CumulativeSum {
  int axis;
  bool reverse;

  Tensor operator()(const Tensor& x) const { return cumsum(x, axis, reverse); }
  Variable operator()(const Variable& x) const {
    return record_linear("cumsum", x, (*this)(x.data()), CumulativeSum{axis, !reverse});
  }
};

}  // namespace

Variable cumsum(const Variable& x, int axis) {
  return record_linear("cumsum", x, cumsum(x.data(), axis), CumulativeSum{axis, true});
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

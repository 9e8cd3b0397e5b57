#include <bs/kernels/logic.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/operand.h>
#include <bs/kernels/reduce_kinds.h>

namespace bs {

namespace {
/// Which elements are not zero: of bools themselves.
Tensor truth(const Tensor& x) { return x.dtype() == boolean ? x : ne(x, 0); }
}  // namespace

Tensor any(const Tensor& x, const Axes& axes, bool keepdim) {
  return any_true("any", truth(x), axes, keepdim);
}

Tensor all(const Tensor& x, const Axes& axes, bool keepdim) {
  return all_true("all", truth(x), axes, keepdim);
}

Tensor logical_not(const Tensor& x) { return eq(x, 0); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return mul(truth(a), truth(b)); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return maximum(truth(a), truth(b)); }
Tensor logical_xor(const Tensor& a, const Tensor& b) { return ne(truth(a), truth(b)); }

namespace {
bool all_close_any(const char* op, const Tensor& a, const Tensor& b, const CloseOptions& options) {
  const Common c = common(op, a, b);
  if (c.shape.product() == 0) return true;
  const Tensor close = Tensor::empty({}, boolean, c.device);
  BS_DISPATCH(c.device, all_close, expand(a, c.dtype, c.shape).tensor,
              expand(b, c.dtype, c.shape).tensor, options, close);
  return close.item() != 0;
}
}  // namespace

bool equal(const Tensor& a, const Tensor& b) {
  check_same_device("equal", a, b);
  return a.shape() == b.shape() && all_close_any("equal", a, b, {0, 0, false});
}

bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options) {
  return all_close_any("allclose", a, b, options);
}

}  // namespace bs

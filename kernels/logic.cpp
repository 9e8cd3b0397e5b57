#include <bs/kernels/logic.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>

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

bool equal(const Tensor& a, const Tensor& b) {
  check_same_device("equal", a, b);
  return a.shape() == b.shape() && any(ne(a, b)).item() == 0;
}

bool allclose(const Tensor& a, const Tensor& b, const CloseOptions& options) {
  const Tensor bound = add(mul(abs(b), options.rtol), options.atol);
  Tensor close = where(isfinite(b), le(abs(sub(a, b)), bound), eq(a, b));
  if (options.equal_nan) close = maximum(close, mul(isnan(a), isnan(b)));
  return all(close).item() != 0;
}

}  // namespace bs

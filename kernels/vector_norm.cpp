#include <bs/kernels/vector_norm.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce_gradient.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>

#include <cmath>

namespace bs {

namespace {

void check_floating(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
}

Tensor widened(const char* op, const Tensor& x) {
  check_floating(op, x);
  return cast(x, x.dtype() == f64 ? f64 : f32);
}

/// A result, or its gradient, beside x: the reduced axes put back.
Tensor beside(const char* op, const Tensor& y, const Tensor& x, const Axes& axes) {
  check_floating(op, x);
  check_same_device(op, x, y);
  Shape kept = x.shape();
  for (const int64_t axis : reduced_axes(op, axes, x.rank())) kept[static_cast<int>(axis)] = 1;
  BS_CHECK(y.numel() == kept.product(), "{}: a gradient of shape {} for an input {}", op, y.shape(),
           x.shape());
  return widened(op, reshape(y, kept)).expand(x.shape());
}

}  // namespace

Tensor vector_norm(const Tensor& x, double p, const Axes& axes, bool keepdim) {
  BS_CHECK(p >= 1, "vector_norm: p is {}, which is less than 1", p);
  if (p == 2) return root_of_squares("vector_norm", x, axes, keepdim);
  const Tensor wide = widened("vector_norm", x);
  Tensor y;
  if (p == 1) {
    y = sum(abs(wide), axes, keepdim);
  } else if (std::isinf(p)) {
    y = amax(abs(wide), axes, keepdim);
  } else {
    y = pow(sum(pow(abs(wide), p), axes, keepdim), 1 / p);
  }
  return cast(y, x.dtype());
}

Tensor vector_norm_backward(const Tensor& x, const Tensor& y, const Tensor& dy, double p,
                            const Axes& axes, bool keepdim) {
  const char* op = "vector_norm_backward";
  if (std::isinf(p)) return mul(sign(x), extremum_backward(abs(x), y, dy, axes, keepdim));
  if (p == 2) {
    const ReducedOperands of(op, x, axes);
    const Tensor length = of.result(op, y), gradient = of.result(op, dy);
    if (x.numel() > 0) BS_DISPATCH(x.device(), vector_norm_backward, of.x, length, gradient, of.dx);
    return of.dx.view(x.shape());
  }
  const Tensor length = beside(op, y, x, axes), gradient = beside(op, dy, x, axes);
  const Tensor wide = widened(op, x);
  if (p == 1) return cast(mul(sign(wide), gradient), x.dtype());
  const Tensor ratio = where(eq(length, 0), 0, div(wide, length));
  const Tensor slope = mul(sign(ratio), pow(abs(ratio), p - 1));
  return cast(mul(slope, gradient), x.dtype());
}

Tensor logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                          bool keepdim) {
  const char* op = "logsumexp_backward";
  BS_CHECK(keepdim ? y.rank() == x.rank() : y.shape() == dy.shape(), "{}: dy {} for a result {}",
           op, dy.shape(), y.shape());
  const ReducedOperands of(op, x, axes);
  const Tensor sums = of.result(op, y), gradient = of.result(op, dy);
  if (x.numel() > 0) BS_DISPATCH(x.device(), logsumexp_backward, of.x, sums, gradient, of.dx);
  return of.dx.view(x.shape());
}

}  // namespace bs

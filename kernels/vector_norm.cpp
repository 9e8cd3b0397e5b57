#include <bs/kernels/vector_norm.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/unary.h>
#include <bs/kernels/where.h>

#include <cmath>
#include <limits>

namespace bs {

namespace {

Tensor widened(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  return cast(x, x.dtype() == f64 ? f64 : f32);
}

/// A result, or its gradient, beside x: the reduced axes put back. `like` is sum(x, axes, true).
Tensor beside(const char* op, const Tensor& y, const Tensor& x, const Axes& axes) {
  const Shape kept = sum(Tensor::empty(Shape(), x.dtype()).expand(x.shape()), axes, true).shape();
  BS_CHECK(y.numel() == kept.product(), "{}: a gradient of shape {} for an input {}", op, y.shape(),
           x.shape());
  return widened(op, reshape(y, kept));
}

}  // namespace

Tensor vector_norm(const Tensor& x, double p, const Axes& axes, bool keepdim) {
  BS_CHECK(p >= 1, "vector_norm: p is {}, which is less than 1", p);
  const Tensor wide = widened("vector_norm", x);
  Tensor y;
  if (p == 2) {
    y = sqrt(sum(mul(wide, wide), axes, keepdim));
  } else if (p == 1) {
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
  const Tensor wide = widened(op, x);
  if (std::isinf(p)) return mul(sign(x), extremum_backward(abs(x), y, dy, axes, keepdim));
  const Tensor length = beside(op, y, x, axes), gradient = beside(op, dy, x, axes);
  if (p == 1) return cast(mul(sign(wide), gradient), x.dtype());
  const Tensor ratio = where(eq(length, 0), 0, div(wide, length));
  const Tensor slope = p == 2 ? ratio : mul(sign(ratio), pow(abs(ratio), p - 1));
  return cast(mul(slope, gradient), x.dtype());
}

Tensor logsumexp_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                          bool keepdim) {
  const char* op = "logsumexp_backward";
  BS_CHECK(keepdim ? y.rank() == x.rank() : y.shape() == dy.shape(), "{}: dy {} for a result {}",
           op, dy.shape(), y.shape());
  const Tensor wide = widened(op, x);
  const Tensor share = exp(sub(wide, beside(op, y, x, axes)));
  const Tensor none = eq(wide, -std::numeric_limits<double>::infinity());
  return cast(where(none, 0, mul(share, beside(op, dy, x, axes))), x.dtype());
}

}  // namespace bs

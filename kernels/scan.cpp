#include <bs/kernels/scan.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce_kinds.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

/// y of x's shape by twin(x, y) on dense [outer, n, inner].
template <class Twin>
Tensor along(const char* op, const Tensor& x, int axis, Twin twin) {
  const int at = normalize_axis(op, axis, x.rank());
  const Tensor dense = contiguous(is_floating(x.dtype()) ? x : cast(x, i64));
  Tensor y = Tensor::empty_like(dense);
  const Shape around = {x.shape().slice(0, at).product(), x.size(at),
                        x.shape().slice(at + 1, x.rank()).product()};
  if (y.numel() > 0) twin(dense.view(around), y.view(around));
  return y;
}

}  // namespace

Tensor cumsum(const Tensor& x, int axis, bool reverse) {
  return along("cumsum", x, axis, [=](const Tensor& dense, const Tensor& y) {
    BS_DISPATCH(y.device(), cumsum, dense, y, reverse);
  });
}

Tensor cumprod(const Tensor& x, int axis) {
  return along("cumprod", x, axis, [](const Tensor& dense, const Tensor& y) {
    BS_DISPATCH(y.device(), cumprod, dense, y);
  });
}

namespace {

/// For rows of any length, by scans of the whole.
Tensor composed_cumprod_backward(const Tensor& factors, const Tensor& gradient) {
  const Tensor zero = eq(factors, 0);
  const Tensor before = div(cumsum(mul(gradient, cumprod(factors, -1)), -1, true), factors);
  const Tensor zeros_so_far = cumsum(zero, -1);
  const Tensor first = cast(mul(zero, eq(zeros_so_far, 1)), boolean);
  const Tensor others = cumprod(where(first, 1, factors), -1);
  const Tensor at_first = where(first, cumsum(mul(gradient, others), -1, true), 0);
  return where(eq(zeros_so_far, 0), before, at_first);
}

}  // namespace

// dx_i = sum over j >= i of dy_j y_j / x_i. From a row's first zero on every y is zero. At the zero
// itself the quotient is the product of the other factors, which is found with a 1 in its place.
Tensor cumprod_backward(const Tensor& x, const Tensor& y, const Tensor& dy, int axis) {
  check_alike("cumprod_backward", x, y);
  check_alike("cumprod_backward", x, dy);
  const int at = normalize_axis("cumprod_backward", axis, x.rank());
  const Tensor factors = contiguous(x.transpose(at, -1));
  const Tensor gradient = contiguous(dy.transpose(at, -1));
  const DType wide = x.dtype() == f64 ? f64 : f32;
  const int64_t n = x.size(at);
  Tensor dx = Tensor::empty_like(factors);
  if (x.device().is_cuda() && n * size_of(wide) > longest_product) {
    dx = cast(composed_cumprod_backward(cast(factors, wide), cast(gradient, wide)), x.dtype());
  } else if (dx.numel() > 0) {
    const Shape rows = {dx.numel() / n, n};
    BS_DISPATCH(dx.device(), cumprod_backward, factors.view(rows), gradient.view(rows),
                dx.view(rows));
  }
  return contiguous(dx.transpose(at, -1));
}

Tensor prod(const Tensor& x, const Axes& axes, bool keepdim) {
  if (!is_floating(x.dtype())) return wide_product("prod", cast(x, i64), axes, keepdim);
  return cast(wide_product("prod", x, axes, keepdim), x.dtype());
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  const char* op = "searchsorted";
  check_same_dtype(op, sorted, values);
  check_same_device(op, sorted, values);
  const bool fit =
      sorted.rank() >= 1 && values.rank() == sorted.rank() &&
      sorted.shape().slice(0, sorted.rank() - 1) == values.shape().slice(0, values.rank() - 1);
  BS_CHECK(fit, "{}: values {} for sorted {}", op, values.shape(), sorted.shape());
  Tensor y = Tensor::empty(values.shape(), i64, values.device());
  const int64_t n = sorted.size(-1), m = values.size(-1);
  if (y.numel() == 0) return y;
  const int64_t rows = values.numel() / m;
  const DType dtype = is_floating(sorted.dtype()) ? sorted.dtype() : i64;
  BS_DISPATCH(y.device(), searchsorted, contiguous(cast(sorted, dtype)).view({rows, n}),
              contiguous(cast(values, dtype)).view({rows, m}), y.view({rows, m}), right);
  return y;
}

}  // namespace bs

#include <bs/kernels/reduce_gradient.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce_kinds.h>

#include <algorithm>

namespace bs {

namespace {

/// The shape of x with extent 1 along `axes`.
Shape kept_shape(const char* op, Shape shape, const Axes& axes) {
  for (const int64_t axis : reduced_axes(op, axes, shape.rank())) shape[static_cast<int>(axis)] = 1;
  return shape;
}

/// dy with the reduced axes, of extent 1, put back.
Tensor with_reduced_axes(const char* op, const Tensor& dy, const Shape& x_shape, const Axes& axes,
                         bool keepdim) {
  const Shape kept = kept_shape(op, x_shape, axes);
  Shape expected = kept;
  if (!keepdim) {
    expected = {};
    const Dims reduced = reduced_axes(op, axes, x_shape.rank());
    for (int i = 0; i < x_shape.rank(); ++i)
      if (std::ranges::find(reduced, i) == reduced.end()) expected.push_back(x_shape[i]);
  }
  BS_CHECK(dy.shape() == expected, "{}: dy of shape {} for a result of shape {}", op, dy.shape(),
           expected);
  return keepdim ? dy : reshape(dy, kept);
}

/// Elements that each result is made of.
double each_of(const ReducedOperands& of) {
  const int64_t results = of.kept.product();
  const int64_t each = results == 0 ? 1 : of.x.numel() / results;
  return static_cast<double>(each);
}

/// 1 / (n - correction), infinite where nothing is left.
double share_of_each(const ReducedOperands& of, double correction) {
  return 1 / std::max(0.0, each_of(of) - correction);
}

/// The mean in the dtype of sums, so that x - mean loses nothing to its rounding. Of one run of
/// axes nothing.
Tensor mean_of_runs(const char* op, const ReducedOperands& of, const Axes& axes) {
  return of.one_run ? Tensor() : wide_sum(op, of.x, axes, true, 1 / each_of(of));
}

}  // namespace

ReducedOperands::ReducedOperands(const char* op, const Tensor& of, const Axes& axes)
    : kept(kept_shape(op, of.shape(), axes)) {
  if (!is_floating(of.dtype())) detail::unsupported_dtype(op, of.dtype(), "f64, f32, f16 or bf16");
  int64_t around[3] = {1, 1, 1};  // extents before, within and after the run of reduced axes
  int at = 0;
  for (int i = 0; i < of.rank(); ++i) {
    if (of.size(i) == 1) continue;
    const bool inside = kept[i] == 1;
    if (inside != (at == 1)) ++at;
    if (at > 2) break;
    around[at] *= of.size(i);
  }
  one_run = at <= 2 && of.is_contiguous();
  x = one_run ? of.view({around[0], around[1], around[2]}) : elementwise_operand(of);
  if (one_run) kept = {around[0], 1, around[2]};
  dx = Tensor::empty_like(x);
}

Tensor ReducedOperands::result(const char* op, const Tensor& y) const {
  check_same_device(op, x, y);
  BS_CHECK(y.numel() == kept.product(), "{}: a gradient of shape {} for an input {}", op, y.shape(),
           x.shape());
  return cast(contiguous(reshape(y, kept)), x.dtype());
}

Tensor sum_backward(const Shape& x_shape, const Tensor& dy, const Axes& axes, bool keepdim) {
  return with_reduced_axes("sum_backward", dy, x_shape, axes, keepdim).expand(x_shape);
}

Tensor mean_backward(const Shape& x_shape, const Tensor& dy, const Axes& axes, bool keepdim) {
  const Tensor kept = with_reduced_axes("mean_backward", dy, x_shape, axes, keepdim);
  const int64_t n = kept.numel() == 0 ? 1 : x_shape.product() / kept.numel();
  return mul(kept, 1 / static_cast<double>(n)).expand(x_shape);
}

Tensor var_backward(const Tensor& x, const Tensor& dy, const Axes& axes, bool keepdim,
                    double correction) {
  const char* op = "var_backward";
  const Tensor kept = with_reduced_axes(op, dy, x.shape(), axes, keepdim);
  const ReducedOperands of(op, x, axes);
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), var_backward, of.x, of.result(op, kept), mean_of_runs(op, of, axes),
                of.dx, 2 * share_of_each(of, correction));
  return of.dx.view(x.shape());
}

Tensor stddev_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                       bool keepdim, double correction) {
  const char* op = "stddev_backward";
  check_same_shape(op, y, dy);
  const Tensor kept = with_reduced_axes(op, dy, x.shape(), axes, keepdim);
  const ReducedOperands of(op, x, axes);
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), stddev_backward, of.x, of.result(op, y), of.result(op, kept),
                mean_of_runs(op, of, axes), of.dx, share_of_each(of, correction));
  return of.dx.view(x.shape());
}

Tensor extremum_backward(const Tensor& x, const Tensor& y, const Tensor& dy, const Axes& axes,
                         bool keepdim) {
  const char* op = "extremum_backward";
  check_same_shape(op, y, dy);
  const Tensor kept = with_reduced_axes(op, dy, x.shape(), axes, keepdim);
  const ReducedOperands of(op, x, axes);
  if (x.numel() == 0) return of.dx.view(x.shape());
  const Tensor result = of.result(op, y);
  // Counted in the dtype of sums: f16 has no number above 65504.
  const Tensor count =
      of.one_run ? Tensor() : cast(sum(eq(of.x, result), axes, true), x.dtype() == f64 ? f64 : f32);
  BS_DISPATCH(x.device(), extremum_backward, of.x, result, of.result(op, kept), count, of.dx);
  return of.dx.view(x.shape());
}

}  // namespace bs

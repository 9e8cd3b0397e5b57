#include <bs/kernels/conv1d.h>

namespace bs {

namespace {

Conv2dOptions rows_of(const Conv1dOptions& o) {
  return {.stride = {1, o.stride},
          .padding = {0, 0, o.left, o.right},
          .same = o.same,
          .dilation = {1, o.dilation},
          .groups = o.groups};
}

/// Sequences as images of one row.
Shape row(const char* op, const char* name, const Shape& shape) {
  BS_CHECK(shape.rank() == 3,
           "{}: {} {} has not three axes: x [N, C, L] and weight [K, C / groups, S] are expected",
           op, name, shape);
  return {shape[0], shape[1], 1, shape[2]};
}

/// The same memory; strides tell the format, also that of the one row.
Tensor row(const char* op, const char* name, const Tensor& t) {
  const Shape shape = row(op, name, t.shape());
  const Strides& s = t.strides();
  return t.as_strided(shape, {s[0], s[1], shape[3] * s[2], s[2]});
}

/// All errors of shapes, in this operation's name.
void check(const char* op, const Shape& x, const Shape& weight, const Conv1dOptions& o) {
  static_cast<void>(conv2d_problem(op, row(op, "x", x), row(op, "weight", weight), rows_of(o)));
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Conv1dOptions& options,
              const Conv2dEpilogue& epilogue) {
  constexpr const char* op = "conv1d";
  check(op, x.shape(), weight.shape(), options);
  Conv2dEpilogue e = epilogue;
  if (e.residual.defined()) e.residual = row(op, "residual", e.residual);
  return conv2d(row(op, "x", x), row(op, "weight", weight), rows_of(options), e).squeeze(2);
}

Tensor conv1d_backward_x(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                         const Conv1dOptions& options) {
  constexpr const char* op = "conv1d_backward_x";
  check(op, x_shape, weight.shape(), options);
  return conv2d_backward_x(row(op, "dy", dy), row(op, "weight", weight), row(op, "x", x_shape),
                           rows_of(options))
      .squeeze(2);
}

Tensor conv1d_backward_w(const Tensor& x, const Tensor& dy, const Shape& weight_shape,
                         const Conv1dOptions& options) {
  constexpr const char* op = "conv1d_backward_w";
  check(op, x.shape(), weight_shape, options);
  return conv2d_backward_w(row(op, "x", x), row(op, "dy", dy), row(op, "weight", weight_shape),
                           rows_of(options))
      .squeeze(2);
}

}  // namespace bs

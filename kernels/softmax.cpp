#include <bs/kernels/softmax.h>

#include <bs/kernels/copy.h>

#include <algorithm>

namespace bs {

namespace {

/// x with `axis` as the last, dense; a scalar as a row of one.
Tensor brought_last(const Tensor& x, int axis) {
  return x.rank() == 0 ? contiguous(x.view({1})) : contiguous(x.transpose(axis, -1));
}
/// A result of the same, as x lies.
Tensor brought_back(const Tensor& y, const Tensor& x, int axis) {
  return x.rank() == 0 ? y.view({}) : contiguous(y.transpose(axis, -1));
}

/// The axis counted from the front.
int checked_axis(const char* op, const Tensor& x, int axis) {
  BS_CHECK(is_floating(x.dtype()), "{}: dtype {} is not supported; expected f64, f32, f16 or bf16",
           op, x.dtype());
  return normalize_axis(op, axis, std::max(x.rank(), 1));  // a scalar is its own row
}

void check_pair(const char* op, const Tensor& y, const Tensor& dy) {
  check_same_shape(op, y, dy);
  check_same_dtype(op, y, dy);
  check_same_device(op, y, dy);
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
  axis = checked_axis("softmax", x, axis);
  const Tensor in = brought_last(x, axis);
  const Tensor y = Tensor::empty_like(in);
  if (x.numel() > 0) BS_DISPATCH(x.device(), softmax, in, y);
  return brought_back(y, x, axis);
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy, int axis) {
  check_pair("softmax_backward", y, dy);
  axis = checked_axis("softmax_backward", y, axis);
  const Tensor out = brought_last(y, axis);
  const Tensor dx = Tensor::empty_like(out);
  if (y.numel() > 0) BS_DISPATCH(y.device(), softmax_backward, out, brought_last(dy, axis), dx);
  return brought_back(dx, y, axis);
}

Tensor log_softmax(const Tensor& x, int axis) {
  axis = checked_axis("log_softmax", x, axis);
  const Tensor in = brought_last(x, axis);
  const Tensor y = Tensor::empty_like(in);
  if (x.numel() > 0) BS_DISPATCH(x.device(), log_softmax, in, y);
  return brought_back(y, x, axis);
}

Tensor log_softmax_backward(const Tensor& y, const Tensor& dy, int axis) {
  check_pair("log_softmax_backward", y, dy);
  axis = checked_axis("log_softmax_backward", y, axis);
  const Tensor out = brought_last(y, axis);
  const Tensor dx = Tensor::empty_like(out);
  if (y.numel() > 0) BS_DISPATCH(y.device(), log_softmax_backward, out, brought_last(dy, axis), dx);
  return brought_back(dx, y, axis);
}

}  // namespace bs

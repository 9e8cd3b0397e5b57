#include <bs/kernels/softmax.h>

namespace bs {

Tensor softmax(const Tensor& x) {
  BS_CHECK(x.rank() > 0, "softmax: a scalar has no axis");
  BS_CHECK(x.is_contiguous(), "softmax: shape {} with strides {} has gaps", x.shape(), x.strides());
  Tensor y = Tensor::empty_like(x);
  if (x.numel() > 0) BS_DISPATCH(x.device(), softmax, x, y);
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  check_same_shape("softmax_backward", y, dy);
  check_same_dtype("softmax_backward", y, dy);
  check_same_device("softmax_backward", y, dy);
  BS_CHECK(y.is_contiguous() && dy.is_contiguous(), "softmax_backward: strides {} and {} for {}",
           y.strides(), dy.strides(), y.shape());
  Tensor dx = Tensor::empty_like(y);
  if (y.numel() > 0) BS_DISPATCH(y.device(), softmax_backward, y, dy, dx);
  return dx;
}

}  // namespace bs

#include <bs/kernels/fill.h>
#include <bs/lib/changes.h>

namespace bs {

void fill(const Tensor& x, double value) {
  BS_CHECK(x.is_contiguous(), "fill: shape {} with strides {} has gaps", x.shape(), x.strides());
  note_change(x, "fill");
  if (x.numel() > 0) BS_DISPATCH(x.device(), fill, x, value);
}

Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x = Tensor::empty(shape, dtype, device);
  fill(x, value);
  return x;
}

Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0.0, dtype, device);
}

Tensor ones(const Shape& shape, DType dtype, Device device) {
  return full(shape, 1.0, dtype, device);
}

}  // namespace bs

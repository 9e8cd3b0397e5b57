#include <bs/kernels/channel_operands.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/dispatch.h>
#include <bs/kernels/image.h>

namespace bs::detail {

Tensor channel_weight(const char* op, const char* name, const Tensor& x, const Tensor& vector) {
  if (!vector.defined()) return vector;
  BS_CHECK(vector.shape() == Shape{x.size(1)}, "{}: {} {} does not fit the {} channels of x {}", op,
           name, vector.shape(), x.size(1), x.shape());
  BS_CHECK(vector.dtype() == x.dtype() || vector.dtype() == statistics_dtype(x),
           "{}: {} of dtype {} for x of {}", op, name, vector.dtype(), x.dtype());
  check_same_device(op, x, vector);
  return contiguous(vector);
}

Tensor channel_vector(const char* op, const char* name, const Tensor& x, const Tensor& vector) {
  const Tensor weight = channel_weight(op, name, x, vector);
  return weight.defined() ? cast(weight, statistics_dtype(x)) : weight;
}

DType gradient_dtype(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const DType usual = statistics_dtype(x);
  const DType of_weight = weight.defined() ? weight.dtype() : usual;
  const DType of_bias = bias.defined() ? bias.dtype() : of_weight;
  return !weight.defined() || of_bias == of_weight ? of_bias : usual;
}

Tensor image_beside(const char* op, const Tensor& x, const Tensor& other) {
  if (!other.defined()) return other;
  check_alike(op, x, other);
  return in_format(other, is_channels_last(x));
}

}  // namespace bs::detail

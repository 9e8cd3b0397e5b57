#include <bs/autograd/pad.h>

#include <bs/autograd/recorded.h>

namespace bs {

namespace {

template <class Options>
Variable record_pad(const Variable& x, const Options& options, GradientOrder order) {
  Options zeros = options;  // a constant around x has no part in the gradient
  zeros.value = 0;
  return record_linear_pair(
      "pad", x, pad(x.data(), options), [zeros](const Tensor& t) { return pad(t, zeros); },
      [shape = x.shape(), options](const Tensor& dy) { return pad_backward(dy, shape, options); },
      order);
}

}  // namespace

Variable pad(const Variable& x, const PadOptions& options) {
  return record_pad(x, options, GradientOrder::any);
}

Variable pad(const Variable& x, const PadAxesOptions& options) {
  return record_pad(x, options, GradientOrder::row_major);
}

}  // namespace bs

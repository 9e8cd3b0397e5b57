#include <bs/kernels/elementary.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/unary.h>

#include <numbers>

namespace bs {

#define BS_ELEMENTARY(function)                                                       \
  Tensor function(const Tensor& x) {                                                  \
    const Tensor in = elementwise_operand(is_floating(x.dtype()) ? x : cast(x, f32)); \
    Tensor y = Tensor::empty_like(in);                                                \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y);                      \
    return y;                                                                         \
  }
BS_ELEMENTARY(sin)
BS_ELEMENTARY(cos)
BS_ELEMENTARY(tan)
BS_ELEMENTARY(erf)
BS_ELEMENTARY(log1p)
BS_ELEMENTARY(expm1)
#undef BS_ELEMENTARY

Tensor tan_backward(const Tensor& y, const Tensor& dy) {
  check_alike("tan_backward", y, dy);
  return dy * (1 + y * y);
}

Tensor erf_backward(const Tensor& x, const Tensor& dy) {
  check_alike("erf_backward", x, dy);
  return dy * (exp(-(x * x)) * (2 * std::numbers::inv_sqrtpi));
}

}  // namespace bs

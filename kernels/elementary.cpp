#include <bs/kernels/elementary.h>

#include <bs/kernels/copy.h>

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

#define BS_ELEMENTARY_BACKWARD(function)                                                           \
  Tensor function(const Tensor& saved, const Tensor& dy) {                                         \
    check_alike(#function, saved, dy);                                                             \
    Tensor dx = Tensor::empty_like(dy);                                                            \
    if (dx.numel() > 0)                                                                            \
      BS_DISPATCH(dx.device(), function, elementwise_operand(saved), elementwise_operand(dy), dx); \
    return dx;                                                                                     \
  }
BS_ELEMENTARY_BACKWARD(tan_backward)
BS_ELEMENTARY_BACKWARD(erf_backward)
#undef BS_ELEMENTARY_BACKWARD

}  // namespace bs

#include <bs/kernels/dropout.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>

namespace bs {

Tensor dropout(const Tensor& x, double p, RandomState state) {
  BS_CHECK(p >= 0 && p <= 1, "dropout: probability {} is not within [0, 1]", p);
  if (!is_floating(x.dtype()))
    detail::unsupported_dtype("dropout", x.dtype(), "f64, f32, f16 or bf16");
  if (p == 0) return x;
  if (p == 1) return zeros(x.shape(), x.dtype(), x.device());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0) BS_DISPATCH(x.device(), dropout, contiguous(x), y, p, state);
  return y;
}

}  // namespace bs

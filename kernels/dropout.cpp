#include <bs/kernels/dropout.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/kernels/where.h>

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

Tensor dropout2d(const Tensor& x, double p, RandomState state) {
  BS_CHECK(x.rank() >= 2, "dropout2d: x {} has no axis of channels", x.shape());
  if (p == 0) return dropout(x, p, state);
  const Tensor factors = dropout(ones({x.size(0), x.size(1)}, x.dtype(), x.device()), p, state);
  if (x.numel() == 0) return x;
  const Tensor in = dense_image(x);
  const int64_t pixels = x.numel() / factors.numel();
  const bool last = is_channels_last(in);
  const Shape stored =
      last ? Shape{x.size(0), pixels, x.size(1)} : Shape{x.size(0), x.size(1), pixels};
  const Tensor y = empty_image_like(in);
  const auto as_stored = [&](const Tensor& t) {
    return t.as_strided(stored, contiguous_strides(stored));
  };
  const Tensor factor = factors.unsqueeze(last ? 1 : 2);
  // What goes is zero, finite or not.
  copy(where(factor, mul(as_stored(in), factor), 0.0), as_stored(y));
  return y;
}

}  // namespace bs

#include <bs/kernels/dropout.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/image.h>
#include <bs/kernels/where.h>

namespace bs {

namespace {

void check(const char* op, const Tensor& x, double p) {
  BS_CHECK(p >= 0 && p <= 1, "{}: probability {} is not within [0, 1]", op, p);
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
}

void check_activation(const char* op, Activation f) {
  BS_CHECK(f == Activation::relu || f == Activation::gelu || f == Activation::gelu_tanh,
           "{}: {} is none of relu, gelu and gelu_tanh", op, to_string(f));
}

}  // namespace

Tensor dropout(const Tensor& x, double p, RandomState state) {
  check("dropout", x, p);
  if (p == 0) return x;
  if (p == 1) return zeros(x.shape(), x.dtype(), x.device());
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0) BS_DISPATCH(x.device(), dropout, contiguous(x), y, p, state, int64_t{0});
  return y;
}

Tensor activation_dropout(const Tensor& x, Activation f, double p, RandomState state) {
  constexpr const char* op = "activation_dropout";
  check(op, x, p);
  check_activation(op, f);
  if (p == 1) return zeros(x.shape(), x.dtype(), x.device());
  if (p == 0) return f == Activation::relu ? relu(x) : gelu(x, detail::gelu_form(f));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0) BS_DISPATCH(x.device(), activation_dropout, contiguous(x), y, f, p, state);
  return y;
}

Tensor activation_dropout_backward(const Tensor& x, const Tensor& dy, Activation f, double p,
                                   RandomState state) {
  constexpr const char* op = "activation_dropout_backward";
  check(op, x, p);
  check_activation(op, f);
  check_alike(op, x, dy);
  if (p == 1) return zeros(x.shape(), x.dtype(), x.device());
  if (p == 0)
    return f == Activation::relu ? relu_backward(x, dy)
                                 : gelu_backward(x, dy, detail::gelu_form(f));
  Tensor dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), activation_dropout_backward, contiguous(x), contiguous(dy), dx, f, p,
                state);
  return dx;
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
  Tensor y = empty_image_like(in);
  const auto as_stored = [&](const Tensor& t) {
    return t.as_strided(stored, contiguous_strides(stored));
  };
  const Tensor factor = factors.unsqueeze(last ? 1 : 2).expand(stored);
  BS_DISPATCH(y.device(), dropout2d, as_stored(in), factor, as_stored(y));
  return y;
}

}  // namespace bs

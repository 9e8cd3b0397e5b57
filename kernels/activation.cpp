#include <bs/kernels/activation.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

Tensor operand(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  return elementwise_operand(x);
}

}  // namespace

#define BS_ACTIVATION(function)                                                       \
  Tensor function(const Tensor& x) {                                                  \
    const Tensor in = operand(#function, x);                                          \
    Tensor y = Tensor::empty_like(in);                                                \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y);                      \
    return y;                                                                         \
  }                                                                                   \
  Tensor function##_backward(const Tensor& saved, const Tensor& dy) {                 \
    check_alike(#function "_backward", saved, dy);                                    \
    const Tensor in = operand(#function "_backward", saved);                          \
    Tensor dx = Tensor::empty_like(dy);                                               \
    if (dx.numel() > 0)                                                               \
      BS_DISPATCH(dx.device(), function##_backward, in, elementwise_operand(dy), dx); \
    return dx;                                                                        \
  }
BS_ACTIVATION(tanh)
BS_ACTIVATION(sigmoid)
BS_ACTIVATION(relu)
BS_ACTIVATION(silu)
#undef BS_ACTIVATION

Tensor gelu(const Tensor& x, Gelu form) {
  const Tensor in = operand("gelu", x);
  Tensor y = Tensor::empty_like(in);
  if (y.numel() > 0) BS_DISPATCH(y.device(), gelu, in, y, form);
  return y;
}

Tensor gelu_backward(const Tensor& x, const Tensor& dy, Gelu form) {
  check_alike("gelu_backward", x, dy);
  const Tensor in = operand("gelu_backward", x);
  Tensor dx = Tensor::empty_like(dy);
  if (dx.numel() > 0)
    BS_DISPATCH(dx.device(), gelu_backward, in, elementwise_operand(dy), dx, form);
  return dx;
}

Tensor activation_backward(Activation activation, const Tensor& x, const Tensor& y,
                           const Tensor& dy) {
  switch (activation) {
    case Activation::relu:
      return relu_backward(y, dy);
    case Activation::tanh:
      return tanh_backward(y, dy);
    case Activation::sigmoid:
      return sigmoid_backward(y, dy);
    case Activation::silu:
      return silu_backward(x, dy);
    case Activation::gelu:
      return gelu_backward(x, dy, Gelu::erf);
    case Activation::gelu_tanh:
      return gelu_backward(x, dy, Gelu::tanh);
    default:
      return dy;
  }
}

std::string to_string(Activation f) {
  constexpr const char* names[] = {"none", "relu", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh"};
  return names[static_cast<size_t>(f)];
}

}  // namespace bs

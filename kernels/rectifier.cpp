#include <bs/kernels/rectifier.h>

#include <bs/kernels/copy.h>

namespace bs {

namespace {

Tensor operand(const char* op, const Tensor& x) {
  if (!is_floating(x.dtype())) detail::unsupported_dtype(op, x.dtype(), "f64, f32, f16 or bf16");
  return elementwise_operand(x);
}

/// y = twin(x), and dx = twin(x, dy).
template <class Twin>
Tensor forward(const char* op, const Tensor& x, Twin twin) {
  const Tensor in = operand(op, x);
  Tensor y = Tensor::empty_like(in);
  if (y.numel() > 0) twin(in, y);
  return y;
}
template <class Twin>
Tensor backward(const char* op, const Tensor& x, const Tensor& dy, Twin twin) {
  check_alike(op, x, dy);
  const Tensor in = operand(op, x);
  Tensor dx = Tensor::empty_like(in);
  if (dx.numel() > 0) twin(in, elementwise_operand(dy), dx);
  return dx;
}

void check_beta(const char* op, double beta) { BS_CHECK(beta > 0, "{}: beta {} <= 0", op, beta); }

}  // namespace

#define BS_RECTIFIER(function)                                                  \
  Tensor function(const Tensor& x) {                                            \
    return forward(#function, x, [](const Tensor& in, const Tensor& y) {        \
      BS_DISPATCH(in.device(), function, in, y);                                \
    });                                                                         \
  }                                                                             \
  Tensor function##_backward(const Tensor& x, const Tensor& dy) {               \
    return backward(#function "_backward", x, dy,                               \
                    [](const Tensor& in, const Tensor& d, const Tensor& dx) {   \
                      BS_DISPATCH(in.device(), function##_backward, in, d, dx); \
                    });                                                         \
  }
BS_RECTIFIER(mish)
BS_RECTIFIER(hardswish)
#undef BS_RECTIFIER

/// The same with a parameter, which CHECK looks at.
#define BS_RECTIFIER(function, CHECK)                                                      \
  Tensor function(const Tensor& x, double parameter) {                                     \
    CHECK(#function, parameter);                                                           \
    return forward(#function, x, [=](const Tensor& in, const Tensor& y) {                  \
      BS_DISPATCH(in.device(), function, in, y, parameter);                                \
    });                                                                                    \
  }                                                                                        \
  Tensor function##_backward(const Tensor& x, const Tensor& dy, double parameter) {        \
    CHECK(#function "_backward", parameter);                                               \
    return backward(#function "_backward", x, dy,                                          \
                    [=](const Tensor& in, const Tensor& d, const Tensor& dx) {             \
                      BS_DISPATCH(in.device(), function##_backward, in, d, dx, parameter); \
                    });                                                                    \
  }
#define BS_ANY(op, parameter)
BS_RECTIFIER(leaky_relu, BS_ANY)
BS_RECTIFIER(elu, BS_ANY)
BS_RECTIFIER(softplus, check_beta)
#undef BS_ANY
#undef BS_RECTIFIER

}  // namespace bs

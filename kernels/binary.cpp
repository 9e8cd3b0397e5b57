#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

/// A call of a backend.
struct Call {
  Operand a, b;
  Tensor y;
};

/// How integers are computed.
enum class Integers : uint8_t {
  kept,     ///< in their own dtype, in which results wrap around
  floating  ///< not at all: as f32
};

Call prepare(const char* op, const Operand& a, const Operand& b, Integers integers) {
  const Common c = common(op, a, b);
  const bool turns = integers == Integers::floating && !is_floating(c.dtype);
  const DType dtype = turns ? f32 : c.dtype;
  check_number(op, a, dtype);
  check_number(op, b, dtype);
  return {expand(a, dtype, c.shape), expand(b, dtype, c.shape),
          Tensor::empty(c.shape, dtype, c.device)};
}

/// Defines the operation for operands of either kind.
#define BS_BINARY(function, how)                                                            \
  Tensor function##_any(const Operand& a, const Operand& b) {                               \
    const Call call = prepare(#function, a, b, Integers::how);                              \
    if (call.y.numel() > 0) BS_DISPATCH(call.y.device(), function, call.a, call.b, call.y); \
    return call.y;                                                                          \
  }
BS_BINARY(add, kept)
BS_BINARY(sub, kept)
BS_BINARY(mul, kept)
BS_BINARY(div, floating)
BS_BINARY(pow, kept)
BS_BINARY(minimum, kept)
BS_BINARY(maximum, kept)
#undef BS_BINARY

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return add_any(a, b); }
Tensor add(const Tensor& a, Scalar b) { return add_any(a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return sub_any(a, b); }
Tensor sub(const Tensor& a, Scalar b) { return sub_any(a, b); }
Tensor sub(Scalar a, const Tensor& b) { return sub_any(a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return mul_any(a, b); }
Tensor mul(const Tensor& a, Scalar b) { return mul_any(a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return div_any(a, b); }
Tensor div(const Tensor& a, Scalar b) { return div_any(a, b); }
Tensor div(Scalar a, const Tensor& b) { return div_any(a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return pow_any(a, b); }
Tensor pow(const Tensor& a, Scalar b) { return pow_any(a, b); }
Tensor pow(Scalar a, const Tensor& b) { return pow_any(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return minimum_any(a, b); }
Tensor minimum(const Tensor& a, Scalar b) { return minimum_any(a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return maximum_any(a, b); }
Tensor maximum(const Tensor& a, Scalar b) { return maximum_any(a, b); }

namespace {

/// A call of a gradient's backend: everything in dy's shape and dtype.
struct GradientCall {
  Operand a, b;
  Tensor dx;
};

GradientCall prepare_gradient(const char* op, const Operand& a, const Operand& b,
                              const Tensor& dy) {
  const Common c = common(op, a, b);
  BS_CHECK(c.shape == dy.shape(), "{}: dy of shape {} for a result of shape {}", op, dy.shape(),
           c.shape);
  BS_CHECK(c.device == dy.device(), "{}: tensors on {} and {}", op, c.device, dy.device());
  return {expand(a, dy.dtype(), c.shape), expand(b, dy.dtype(), c.shape), Tensor::empty_like(dy)};
}

}  // namespace

#define BS_GRADIENT(function, A, B)                                                           \
  Tensor function(A a, B b, const Tensor& dy) {                                               \
    const GradientCall call = prepare_gradient(#function, a, b, dy);                          \
    if (call.dx.numel() > 0) BS_DISPATCH(dy.device(), function, call.a, call.b, dy, call.dx); \
    return call.dx;                                                                           \
  }
BS_GRADIENT(div_backward_b, const Operand&, const Tensor&)
BS_GRADIENT(pow_backward_a, const Tensor&, const Operand&)
BS_GRADIENT(pow_backward_b, const Operand&, const Tensor&)
BS_GRADIENT(minimum_backward, const Tensor&, const Operand&)
BS_GRADIENT(maximum_backward, const Tensor&, const Operand&)
#undef BS_GRADIENT

}  // namespace bs

#include <bs/kernels/unary.h>

#include <bs/kernels/elementwise_function.h>

#include <algorithm>

namespace bs {

namespace {

/// x as i32, i64 or floats: u8 and bool are widened.
Tensor arithmetic(const Tensor& x) {
  return elementwise_operand(x.dtype() == u8 || x.dtype() == boolean ? cast(x, i32) : x);
}

/// The same for what bool has none of.
Tensor numbers(const char* op, const Tensor& x) {
  BS_CHECK(x.dtype() != boolean, "{}: of bool there is none; cast it first", op);
  return arithmetic(x);
}

/// What was widened to compute, in u8 again.
Tensor as_before(const Tensor& y, const Tensor& x) { return x.dtype() == u8 ? cast(y, u8) : y; }

}  // namespace

BS_FLOATING_FUNCTION(exp)
BS_FLOATING_FUNCTION(log)
BS_FLOATING_FUNCTION(sqrt)
BS_FLOATING_FUNCTION(rsqrt)
BS_FLOATING_FUNCTION(reciprocal)

#define BS_UNARY(function)                                       \
  Tensor function(const Tensor& x) {                             \
    const Tensor in = numbers(#function, x);                     \
    Tensor y = Tensor::empty_like(in);                           \
    if (y.numel() > 0) BS_DISPATCH(y.device(), function, in, y); \
    return as_before(y, x);                                      \
  }
BS_UNARY(neg)
BS_UNARY(abs)
#undef BS_UNARY

Tensor clamp(const Tensor& x, double low, double high) {
  BS_CHECK(low <= high, "clamp: bounds {} and {} are in no order", low, high);
  const Tensor in = x.dtype() == boolean ? elementwise_operand(cast(x, i64)) : arithmetic(x);
  Tensor y = Tensor::empty_like(in);
  if (x.dtype() == u8) {
    low = std::clamp(low, 0.0, 255.0);
    high = std::clamp(high, 0.0, 255.0);
  }
  if (y.numel() > 0) BS_DISPATCH(y.device(), clamp, in, y, low, high);
  return as_before(y, x);
}

BS_FUNCTION_BACKWARD(abs_backward)
BS_FUNCTION_BACKWARD(sqrt_backward)
BS_FUNCTION_BACKWARD(rsqrt_backward)
BS_FUNCTION_BACKWARD(reciprocal_backward)

Tensor clamp_backward(const Tensor& x, const Tensor& dy, double low, double high) {
  check_alike("clamp_backward", x, dy);
  Tensor dx = Tensor::empty_like(dy);
  if (dx.numel() > 0)
    BS_DISPATCH(dx.device(), clamp_backward, elementwise_operand(x), elementwise_operand(dy), dx,
                low, high);
  return dx;
}

}  // namespace bs

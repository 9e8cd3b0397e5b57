#include <bs/autograd/nan_to_num.h>

#include <bs/autograd/unary.h>
#include <bs/autograd/where.h>
#include <bs/kernels/compare.h>
#include <bs/kernels/rounding.h>

#include <cmath>

namespace bs {

namespace {

double largest(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    default:
      return std::numeric_limits<float>::max();
  }
}

}  // namespace

Variable nan_to_num(const Variable& x, double nan, double positive, double negative) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor& values = x.data();
  if (!is_floating(values.dtype())) return x;
  Variable y = clamp(x, -largest(values.dtype()), largest(values.dtype()));  // NaN stays NaN
  if (!std::isinf(positive)) y = where(eq(values, infinity), positive, y);
  if (!std::isinf(negative)) y = where(eq(values, -infinity), negative, y);
  return where(isnan(values), nan, y);
}

}  // namespace bs

#include <bs/kernels/rope.h>

#include <bs/kernels/arange.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/elementary.h>
#include <bs/kernels/unary.h>

#include <cmath>

namespace bs {

Tensor rope_table(int64_t length, int64_t dim, double base, int64_t first, DType dtype,
                  Device device) {
  BS_CHECK(length >= 0 && dim > 0 && dim % 2 == 0, "rope_table: {} places of {} elements", length,
           dim);
  constexpr int64_t most = int64_t{1} << 32, farthest = int64_t{1} << 53;
  BS_CHECK(length <= most / dim && first >= -farthest && first <= farthest,
           "rope_table: {} places of {} elements from {} on", length, dim, first);
  BS_CHECK(base > 0, "rope_table: base {}", base);
  BS_CHECK(dtype == f32 || dtype == f64, "rope_table: {} is neither f32 nor f64", dtype);
  const int64_t pairs = dim / 2;
  const Tensor numbers = arange(pairs, f64, device).view({1, pairs});
  const Tensor rates = exp(mul(numbers, -2 * std::log(base) / static_cast<double>(dim)));
  const auto begin = static_cast<double>(first);
  const Tensor places = arange(begin, begin + static_cast<double>(length), 1, f64, device);
  const Tensor angles = mul(places.view({length, 1}), rates);
  return cast(stack({cos(angles), sin(angles)}, 1), dtype);
}

Tensor rope(const Tensor& x, const Tensor& table, const RopeOptions& options) {
  BS_CHECK(x.rank() == 4, "rope: x {} is not [batch, heads, sequence, head_dim]", x.shape());
  check_same_device("rope", x, table);
  const DType wide = x.dtype() == f64 ? f64 : f32;
  BS_CHECK(table.dtype() == wide, "rope: a table of {} for x of {}", table.dtype(), x.dtype());
  BS_CHECK(table.rank() == 3 && table.size(0) == x.size(2) && table.size(1) == 2 &&
               2 * table.size(2) <= x.size(3),
           "rope: table {} is not [sequence, 2, pairs] of x {}", table.shape(), x.shape());
  Tensor y = Tensor::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.dtype(), x.device())
                 .permute({0, 2, 1, 3});
  const bool dense = x.strides().back() == 1 || x.size(3) == 1;
  if (x.numel() > 0)
    BS_DISPATCH(x.device(), rope, dense ? x : clone(x), contiguous(table), y, options);
  return y;
}

Tensor rope_backward(const Tensor& dy, const Tensor& table, const RopeOptions& options) {
  return rope(dy, table, {.interleaved = options.interleaved, .inverse = !options.inverse});
}

}  // namespace bs

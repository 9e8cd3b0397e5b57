#include <bs/kernels/rope.h>

#include <bs/kernels/copy.h>

#include <cmath>
#include <span>
#include <vector>

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
  std::vector<double> values(static_cast<size_t>(length * dim));
  const auto at = [&](int64_t i) -> double& { return values[static_cast<size_t>(i)]; };
  for (int64_t p = 0; p < length; ++p)
    for (int64_t i = 0; i < pairs; ++i) {
      const double rate = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const double angle = static_cast<double>(first + p) * rate;
      at(p * dim + i) = std::cos(angle);
      at(p * dim + pairs + i) = std::sin(angle);
    }
  const Tensor table = Tensor::from(std::span<const double>(values), {length, 2, pairs});
  return cast(table, dtype).to(device);
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

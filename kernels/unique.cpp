#include <bs/kernels/unique.h>

#include <bs/kernels/binary.h>
#include <bs/kernels/concat.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/nonzero.h>
#include <bs/lib/integers.h>

#include <limits>

namespace bs {

Unique unique(const Tensor& x) {
  const int64_t n = x.numel();
  const Device device = x.device();
  const Tensor flat = reshape(contiguous(x), {n});
  if (n == 0) return {flat, Tensor::empty(x.shape(), i64, device), zeros({0}, i64, device)};
  const DType number = n <= std::numeric_limits<int32_t>::max() ? i32 : i64;
  const Tensor order = Tensor::empty({n}, number, device);
  const Tensor first = Tensor::empty({n}, boolean, device);
  const Tensor sorted = Tensor::empty({n}, x.dtype(), device);
  BS_DISPATCH(device, order_groups, flat, order, sorted, first);
  const int64_t parts = ceil_div(n, nonzero_part);
  const Tensor before = Tensor::empty({parts + 1}, i64, device);
  BS_DISPATCH(device, count_nonzero, first, before);
  const auto groups = static_cast<int64_t>(before.slice(0, parts, parts + 1).item());
  const Tensor values = Tensor::empty({groups}, x.dtype(), device);
  const Tensor begins = Tensor::empty({groups}, i64, device);
  const Tensor inverse = Tensor::empty(x.shape(), i64, device);
  BS_DISPATCH(device, number_groups, sorted, order, first, before, values, begins, inverse);
  const Tensor end = full({1}, static_cast<double>(n), i64, device);
  return {values, inverse, sub(concat({begins.slice(0, 1, groups), end}, 0), begins)};
}

}  // namespace bs

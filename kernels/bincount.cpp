#include <bs/kernels/bincount.h>

#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/gather.h>

#include <algorithm>

namespace bs {

Tensor bincount(const Tensor& x, const Tensor& weights, int64_t least) {
  const char* op = "bincount";
  if (x.dtype() != i64 && x.dtype() != i32) detail::unsupported_dtype(op, x.dtype(), "i64 or i32");
  if (weights.defined()) {
    check_same_shape(op, x, weights);
    check_same_device(op, x, weights);
  }
  const DType dtype = weights.defined() ? weights.dtype() : i64;
  if (x.numel() == 0) return zeros({least}, dtype, x.device());
  const Tensor flat = reshape(contiguous(x), {x.numel()});
  const Tensor found = Tensor::empty({counted_numbers + 2}, i64, x.device());
  BS_DISPATCH(x.device(), count_few, flat, found);
  const Tensor bounds = found.slice(0, counted_numbers, counted_numbers + 2).to(Device::cpu());
  const double low = bounds.slice(0, 0, 1).item(), high = bounds.slice(0, 1, 2).item();
  BS_CHECK(low >= 0, "{}: {} is negative", op, low);
  BS_CHECK(high < 0x1p53, "{}: {} is too large", op, high);
  const int64_t bins = std::max(least, static_cast<int64_t>(high) + 1);
  if (weights.defined())
    return scatter_add(zeros({bins}, dtype, x.device()), 0, flat, reshape(weights, flat.shape()));
  if (bins <= counted_numbers) return clone(found.slice(0, 0, bins));
  Tensor counts = Tensor::empty({bins}, i64, x.device());
  BS_DISPATCH(x.device(), count_all, flat, counts);
  return counts;
}

}  // namespace bs

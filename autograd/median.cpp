#include <bs/autograd/median.h>

#include <bs/autograd/gather.h>
#include <bs/autograd/view.h>
#include <bs/kernels/rounding.h>
#include <bs/kernels/where.h>

namespace bs {

IndexedVariable median(const Variable& x, int axis, bool keepdim) {
  const Tensor& data = x.data();
  const int at = normalize_axis("median", axis, data.rank());
  const int64_t n = data.size(at);
  BS_CHECK(n > 0, "median: axis {} of {} has no elements", at, data.shape());
  Tensor indices = kthvalue(data, (n + 1) / 2, at, true).indices;
  if (is_floating(data.dtype())) {
    const Indexed last = max(data, at, true);  // NaN where a row has one
    indices = where(isnan(last.values), last.indices, indices);
  }
  const Variable values = gather(x, at, indices);
  if (keepdim) return {values, indices};
  return {squeeze(values, at), indices.squeeze(at)};
}

}  // namespace bs

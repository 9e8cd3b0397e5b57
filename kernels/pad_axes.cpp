#include <bs/kernels/pad_axes.h>

#include <bs/kernels/fill.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs {

AxisPlaces AxisPlaces::within(const Shape& y, Dims& first) const {
  AxisPlaces part = *this;
  first = Dims::filled(y.rank(), 0);
  for (int axis = 0; axis < y.rank(); ++axis) {
    first[axis] = low[axis] < 0 ? ceil_div(-low[axis], step[axis]) : 0;
    const int64_t room = y[axis] - low[axis];
    const int64_t last = std::min(inner[axis], room > 0 ? ceil_div(room, step[axis]) : 0);
    part.inner[axis] = std::max<int64_t>(last - first[axis], 0);
    part.low[axis] = low[axis] + first[axis] * step[axis];
  }
  return part;
}

namespace {
void check_places(const Operand& x, const AxisPlaces& places, const Tensor& y) {
  constexpr int64_t most = int64_t{1} << 60;  // sums of two of them are still numbers
  const int rank = y.rank();
  BS_CHECK(places.inner.rank() == rank && places.low.rank() == rank && places.step.rank() == rank,
           "pad_views: shape {}, first places {} and steps {} for y of shape {}", places.inner,
           places.low, places.step, y.shape());
  BS_CHECK(x.is_number || x.tensor.shape() == places.inner,
           "pad_views: x of shape {} for places of shape {}", x.tensor.shape(), places.inner);
  for (int axis = 0; axis < rank; ++axis) {
    const int64_t n = places.inner[axis], low = places.low[axis], step = places.step[axis];
    BS_CHECK(step >= 1 && step <= most && n <= most / step && low >= -most && low <= most,
             "pad_views: {} elements from {} on in steps of {} on axis {}", n, low, step, axis);
  }
}
}  // namespace

PadViews pad_views(const Operand& x, const AxisPlaces& places, const Tensor& y) {
  check_places(x, places, y);
  PadViews part{x.is_number
                    ? full({}, x.number.to<double>(), y.dtype(), y.device()).expand(places.inner)
                    : x.tensor,
                y};
  Dims first;
  const AxisPlaces seen = places.within(y.shape(), first);
  for (int axis = 0; axis < y.rank(); ++axis) {
    const int64_t n = seen.inner[axis], low = seen.low[axis], step = seen.step[axis];
    part.from = part.from.slice(axis, first[axis], first[axis] + n);
    part.to = n > 0 ? part.to.slice(axis, low, low + (n - 1) * step + 1, step)
                    : part.to.slice(axis, 0, 0);
  }
  return part;
}

}  // namespace bs

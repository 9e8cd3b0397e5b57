#include <bs/lib/overlap.h>

#include <array>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

namespace bs {

namespace {

/// First and last element, in elements from data(); of a view that is not empty.
std::pair<int64_t, int64_t> reach(const Tensor& x) {
  int64_t first = 0, last = 0;
  const int64_t* const extents = x.shape().begin();
  const int64_t* const strides = x.strides().begin();
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t step = (extents[i] - 1) * strides[i];
    (step < 0 ? first : last) += step;
  }
  return {first, last};
}

/// Distance between neighbours along an axis, in bytes; 0 where there is no neighbour.
int64_t step(const Tensor& x, int axis) {
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  return x.size(axis) > 1 ? std::abs(x.strides()[axis]) * size : 0;
}

/// Whether views take turns: their steps of `least` bytes and more are multiples of one period, and
/// what shorter steps reach of each lies in a part of the period of its own.
bool take_turns(const Tensor& a, const Tensor& b, int64_t least) {
  int64_t period = 0;
  const auto within = [&](const Tensor& x) {
    auto bytes = static_cast<int64_t>(size_of(x.dtype()));
    for (int axis = 0; axis < x.rank(); ++axis) {
      const int64_t length = step(x, axis);
      if (length >= least) {
        period = std::gcd(period, length);
      } else {
        bytes += length * (x.size(axis) - 1);
      }
    }
    return bytes;
  };
  const int64_t of_a = within(a), of_b = within(b);
  const int64_t apart = static_cast<int64_t>(byte_range(b).begin - byte_range(a).begin) % period;
  const int64_t begin = apart < 0 ? apart + period : apart;
  return begin >= of_a && begin + of_b <= period;
}

/// Writes down every element; for strides that no simple rule decides.
bool repeats_some(const Tensor& x) {
  const auto [first, last] = reach(x);
  std::vector<bool> seen(static_cast<size_t>(last - first + 1));
  std::array<int64_t, Shape::max_rank> at{};
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t offset = -first;
    for (int axis = 0; axis < x.rank(); ++axis)
      offset += at[static_cast<size_t>(axis)] * x.strides()[axis];
    if (seen[static_cast<size_t>(offset)]) return true;
    seen[static_cast<size_t>(offset)] = true;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      if (++at[static_cast<size_t>(axis)] < x.size(axis)) break;
      at[static_cast<size_t>(axis)] = 0;
    }
  }
  return false;
}

}  // namespace

ByteRange byte_range(const Tensor& x) {
  if (!x.defined() || x.numel() == 0) return {};
  const auto [first, last] = reach(x);
  const auto size = static_cast<int64_t>(size_of(x.dtype()));
  const auto base = reinterpret_cast<uintptr_t>(x.data());
  return {base + static_cast<uintptr_t>(first * size),
          base + static_cast<uintptr_t>((last + 1) * size)};
}

bool ranges_overlap(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || a.device() != b.device()) return false;
  return byte_range(a).overlaps(byte_range(b));
}

bool may_share_elements(const Tensor& a, const Tensor& b) {
  if (!ranges_overlap(a, b)) return false;
  for (const Tensor* x : {&a, &b})
    for (int axis = 0; axis < x->rank(); ++axis)
      if (const int64_t least = step(*x, axis); least > 0 && take_turns(a, b, least)) return false;
  return true;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.data() != b.data() || a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a.size(axis) > 1 && a.strides()[axis] != b.strides()[axis]) return false;
  return true;
}

bool repeats_elements(const Tensor& x) {
  if (x.numel() <= 1 || x.is_contiguous()) return false;
  std::array<std::pair<int64_t, int64_t>, Shape::max_rank> axes;  // stride and extent
  size_t count = 0;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) == 1) continue;
    axes[count++] = {std::abs(x.strides()[i]), x.size(i)};
    for (size_t at = count - 1; at > 0 && axes[at] < axes[at - 1]; --at)  // the shortest first
      std::swap(axes[at], axes[at - 1]);
  }
  int64_t within = 0;  // how far the shorter strides reach
  for (size_t i = 0; i < count; ++i) {
    const auto [stride, extent] = axes[i];
    if (stride == 0) return true;
    if (stride <= within) return repeats_some(x);
    within += stride * (extent - 1);
  }
  return false;
}

void check_writable(const char* op, const Tensor& x) {
  BS_CHECK(!repeats_elements(x),
           "{}: cannot write to shape {} with strides {}, which names an element twice", op,
           x.shape(), x.strides());
}

}  // namespace bs

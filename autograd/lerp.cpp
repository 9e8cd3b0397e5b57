#include <bs/autograd/lerp.h>

#include <bs/autograd/binary.h>

#include <cmath>

namespace bs {

Variable lerp(const Variable& a, const Variable& b, double weight) {
  const Variable way = sub(b, a);
  // From the nearer end, so that each end is met exactly.
  if (std::abs(weight) < 0.5) return add(a, mul(way, weight));
  return sub(b, mul(way, 1 - weight));
}

Variable lerp(const Variable& a, const Variable& b, const Variable& weight) {
  return add(a, mul(sub(b, a), weight));
}

}  // namespace bs

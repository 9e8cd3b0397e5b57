#include <bs/autograd/dropout.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/dropout.h>

namespace bs {

Variable dropout(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  return record_self_adjoint("dropout", x,
                             [p, state](const Tensor& dy) { return dropout(dy, p, state); });
}

Variable dropout2d(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  const auto drop = [p, state](const Tensor& dy) { return dropout2d(dy, p, state); };
  return record_self_adjoint("dropout2d", x, drop, GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/dropout.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/dropout.h>

namespace bs {

Variable dropout(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  return tape().record("dropout", {x}, dropout(x.data(), p, state),
                       [p, state](const Tensor& dy) { return Grads{dropout(dy, p, state)}; });
}

Variable dropout2d(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  const auto backward = [p, state](const Tensor& dy) { return Grads{dropout2d(dy, p, state)}; };
  return tape().record("dropout2d", {x}, dropout2d(x.data(), p, state), backward,
                       GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/image.h>

#include <bs/autograd/tape.h>

namespace bs {

Variable channels_last(const Variable& x) {
  Tensor y = channels_last(x.data());
  // The gradient may come in any format, and is passed on as it is.
  const auto backward = [](const Tensor& dy) { return Grads{dy}; };
  return tape().record("channels_last", {x}, std::move(y), backward, GradientOrder::any);
}

Variable relayout(const Variable& x, ImageFormat from, ImageFormat to) {
  return tape().record("relayout", {x}, relayout(x.data(), from, to),
                       [from, to](const Tensor& dy) { return Grads{relayout(dy, to, from)}; });
}

}  // namespace bs

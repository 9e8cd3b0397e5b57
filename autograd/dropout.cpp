#include <bs/autograd/dropout.h>

#include <bs/autograd/activation.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/dropout.h>

namespace bs {

Variable dropout(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  return record_self_adjoint("dropout", x,
                             [p, state](const Tensor& dy) { return dropout(dy, p, state); });
}

namespace {

Variable activated(const Variable& x, Activation f) {
  if (f == Activation::relu) return relu(x);
  return gelu(x, detail::gelu_form(f));
}

}  // namespace

Variable activation_dropout(const Variable& x, Activation f, double p, Generator& generator) {
  if (p == 0) return activated(x, f);
  const RandomState state = generator.next();
  const Tensor y = activation_dropout(x.data(), f, p, state);
  // Where the result of relu is positive x is, and what follows may keep the result as well.
  if (f == Activation::relu)
    return record_chosen("activation_dropout", x, y,
                         [y = SavedTensor(y), f, p, state](const Tensor& dy) {
                           return activation_dropout_backward(y, dy, f, p, state);
                         });
  return tape().record("activation_dropout", {x}, y,
                       Twice{[x = SavedTensor(x.data()), f, p, state](const Tensor& dy) {
                               return Grads{activation_dropout_backward(x, dy, f, p, state)};
                             },
                             [f, p, state](const Recorded& r) {
                               return by_definition(r, [=](std::span<const Variable> in) {
                                 return record_self_adjoint("dropout", activated(in[0], f),
                                                            [p, state](const Tensor& dy) {
                                                              return dropout(dy, p, state);
                                                            });
                               });
                             }});
}

Variable dropout2d(const Variable& x, double p, Generator& generator) {
  if (p == 0) return x;
  const RandomState state = generator.next();
  const auto drop = [p, state](const Tensor& dy) { return dropout2d(dy, p, state); };
  return record_self_adjoint("dropout2d", x, drop, GradientOrder::any);
}

}  // namespace bs

#include <bs/autograd/softmax.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/unary.h>
#include <bs/kernels/softmax.h>

namespace bs {

Variable softmax(const Variable& x, int axis) {
  Tensor y = softmax(x.data(), axis);
  return tape().record("softmax", {x}, y,
                       Twice{[y = SavedTensor(y), axis](const Tensor& dy) {
                               return Grads{softmax_backward(y, dy, axis)};
                             },
                             [axis](const Recorded& r) {
                               const Variable part = sum(r.dy() * r.y(), axis, true);
                               return VariableGrads{(r.dy() - part) * r.y()};
                             }});
}

Variable log_softmax(const Variable& x, int axis) {
  Tensor y = log_softmax(x.data(), axis);
  return tape().record("log_softmax", {x}, y,
                       Twice{[y = SavedTensor(y), axis](const Tensor& dy) {
                               return Grads{log_softmax_backward(y, dy, axis)};
                             },
                             [axis](const Recorded& r) {
                               const Variable whole = sum(r.dy(), axis, true);
                               return VariableGrads{r.dy() - exp(r.y()) * whole};
                             }});
}

}  // namespace bs

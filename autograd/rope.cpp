#include <bs/autograd/rope.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable rope(const Variable& x, const Tensor& table, const RopeOptions& options) {
  return tape().record("rope", {x}, rope(x.data(), table, options),
                       [table = SavedTensor(table), options](const Tensor& dy) {
                         return Grads{rope_backward(dy, table, options)};
                       });
}

}  // namespace bs

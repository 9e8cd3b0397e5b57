#include <bs/autograd/rope.h>

#include <bs/autograd/recorded.h>
#include <bs/autograd/saved_tensor.h>

namespace bs {

Variable rope(const Variable& x, const Tensor& table, const RopeOptions& options) {
  return record_linear_pair(
      "rope", x, rope(x.data(), table, options),
      [table = SavedTensor(table), options](const Tensor& t) { return rope(t, table, options); },
      [table = SavedTensor(table), options](const Tensor& dy) {
        return rope_backward(dy, table, options);
      });
}

}  // namespace bs

#include <bs/autograd/index_select.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/index_select.h>

namespace bs {

Variable index_select(const Variable& x, int axis, const Tensor& indices) {
  return tape().record(
      "index_select", {x}, index_select(x.data(), axis, indices),
      [axis, indices = SavedTensor(indices), extent = x.size(axis)](const Tensor& dy) {
        return Grads{index_select_backward(dy, axis, indices, extent)};
      });
}

}  // namespace bs

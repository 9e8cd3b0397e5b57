#include <bs/autograd/vector_norm.h>

#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable vector_norm(const Variable& x, double p, const Axes& axes, bool keepdim) {
  const Tensor y = vector_norm(x.data(), p, axes, keepdim);
  return tape().record(
      "vector_norm", {x}, y,
      [x = SavedTensor(x.data()), y = SavedTensor(y), p, axes, keepdim](const Tensor& dy) {
        return Grads{vector_norm_backward(x, y, dy, p, axes, keepdim)};
      });
}

Variable logsumexp(const Variable& x, const Axes& axes, bool keepdim) {
  const Tensor y = logsumexp(x.data(), axes, keepdim);
  return tape().record(
      "logsumexp", {x}, y,
      [x = SavedTensor(x.data()), y = SavedTensor(y), axes, keepdim](const Tensor& dy) {
        return Grads{logsumexp_backward(x, y, dy, axes, keepdim)};
      });
}

}  // namespace bs

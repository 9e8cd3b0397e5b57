#include <bs/autograd/loss.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

Variable cross_entropy(const Variable& logits, const Tensor& targets,
                       const CrossEntropyOptions& options) {
  CrossEntropyResult result = cross_entropy(logits.data(), targets, options);
  return tape().record("cross_entropy", {logits}, result.loss,
                       [x = SavedTensor(logits.data()), targets = SavedTensor(targets), result,
                        options](const Tensor& dloss) {
                         return Grads{cross_entropy_backward(x, targets, result, dloss, options)};
                       });
}

}  // namespace bs

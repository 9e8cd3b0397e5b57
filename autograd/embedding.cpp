#include <bs/autograd/embedding.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/embedding.h>

namespace bs {

Variable embedding(const Variable& weight, const Tensor& indices, int64_t padding_index) {
  return tape().record(
      "embedding", {weight}, embedding(weight.data(), indices),
      [indices = SavedTensor(indices), rows = weight.size(0), padding_index](const Tensor& dy) {
        return Grads{embedding_backward(dy, indices, rows, padding_index)};
      });
}

}  // namespace bs

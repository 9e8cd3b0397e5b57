#include <bs/autograd/block_sparse_softmax.h>
#include <bs/autograd/tape.h>

namespace bs {

SparseVariable block_sparse_softmax(const SparseVariable& s,
                                    const BlockSparseSoftmaxOptions& options) {
  const SparseTensor y = block_sparse_softmax(s.data(), options);
  return {s.layout, tape().record("block_sparse_softmax", {s.values}, y.values,
                                  [y, scale = options.scale](const Tensor& dy) {
                                    return Grads{block_sparse_softmax_backward(y, dy, scale)};
                                  })};
}

}  // namespace bs

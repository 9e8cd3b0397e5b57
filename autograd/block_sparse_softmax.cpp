#include <bs/autograd/block_sparse_softmax.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>

namespace bs {

SparseVariable block_sparse_softmax(const SparseVariable& s, const BlockSparseSoftmaxOptions& given,
                                    const Variable& bias) {
  BlockSparseSoftmaxOptions options = given;
  if (bias.defined()) {
    BS_CHECK(!given.bias.defined(), "block_sparse_softmax: the bias is given twice");
    options.bias = bias.data();
  }
  const SparseTensor result = block_sparse_softmax(s.data(), options);
  return {s.layout,
          tape().record("block_sparse_softmax", {s.values, bias}, result.values,
                        [layout = s.layout, values = SavedTensor(result.values),
                         scale = options.scale, learnt = bias.requires_grad(),
                         shape = options.bias.defined() ? options.bias.shape() : Shape{},
                         dtype = bias.defined() ? bias.dtype() : f32](const Tensor& dy) {
                          const SparseTensor y{layout, values};
                          Grads grads{block_sparse_softmax_backward(y, dy, scale), Tensor()};
                          if (learnt)
                            grads[1] =
                                cast(block_sparse_softmax_bias_gradient(y, dy, shape), dtype);
                          return grads;
                        })};
}

}  // namespace bs

#include <bs/autograd/block_sparse_convert.h>
#include <bs/autograd/tape.h>
#include <bs/kernels/block_sparse_convert.h>

namespace bs {

Variable to_dense(const SparseVariable& s) {
  return tape().record(
      "to_dense", {s.values}, to_dense(s.data()),
      [layout = s.layout](const Tensor& dy) { return Grads{to_sparse(dy, layout).values}; });
}

SparseVariable to_sparse(const Variable& dense, const LayoutPtr& layout) {
  const Tensor values = to_sparse(dense.data(), layout).values;
  return {layout, tape().record("to_sparse", {dense}, values, [layout](const Tensor& dy) {
            return Grads{to_dense(SparseTensor{layout, dy})};
          })};
}

}  // namespace bs

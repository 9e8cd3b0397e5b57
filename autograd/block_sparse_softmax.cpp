#include <bs/autograd/block_sparse_softmax.h>

#include <bs/autograd/binary.h>
#include <bs/autograd/block_sparse_convert.h>
#include <bs/autograd/copy.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/reduce.h>
#include <bs/autograd/view.h>
#include <bs/kernels/copy.h>

namespace bs {

namespace {

/// Of the scores and a bias that is learnt.
struct SoftmaxRule {
  LayoutPtr layout;
  SavedTensor values;
  double scale;
  bool learnt;
  Shape bias;
  DType dtype;  ///< of the bias

  Grads operator()(const Tensor& dy) const {
    const SparseTensor y{layout, values};
    Grads grads{block_sparse_softmax_backward(y, dy, scale), Tensor()};
    if (learnt) grads[1] = cast(block_sparse_softmax_bias_gradient(y, dy, bias), dtype);
    return grads;
  }
  /// The same on variables; rows are added up in a dense matrix.
  VariableGrads again(const Recorded& r) const {
    const DType wide = values.dtype() == f64 ? f64 : f32;
    const Variable y = cast(r.y(), wide), dy = cast(r.dy(), wide);
    const Variable products = to_dense({layout, y * dy});
    const Variable sums = expand(sum(products, -1, true), products.shape());
    const Variable ds = y * (dy - to_sparse(sums, layout).values);
    VariableGrads grads(2);
    if (r.wants(0)) grads[0] = cast(ds * scale, values.dtype());
    if (r.wants(1)) grads[1] = cast(sum_to(to_dense({layout, ds}), bias), dtype);
    return grads;
  }
};

}  // namespace

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
                        SoftmaxRule{s.layout, SavedTensor(result.values), options.scale,
                                    bias.requires_grad(), bias.defined() ? bias.shape() : Shape{},
                                    bias.defined() ? bias.dtype() : f32})};
}

}  // namespace bs

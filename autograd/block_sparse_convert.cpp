#include <bs/autograd/block_sparse_convert.h>
#include <bs/autograd/recorded.h>
#include <bs/kernels/block_sparse_convert.h>

namespace bs {

namespace {

/// Each is the gradient of the other.
struct Spread {
  LayoutPtr layout;
  Tensor operator()(const Tensor& values) const { return to_dense(SparseTensor{layout, values}); }
};
struct Pick {
  LayoutPtr layout;
  Tensor operator()(const Tensor& dense) const { return to_sparse(dense, layout).values; }
};

}  // namespace

Variable to_dense(const SparseVariable& s) {
  return record_linear_pair("to_dense", s.values, to_dense(s.data()), Spread{s.layout},
                            Pick{s.layout});
}

SparseVariable to_sparse(const Variable& dense, const LayoutPtr& layout) {
  return {layout, record_linear_pair("to_sparse", dense, to_sparse(dense.data(), layout).values,
                                     Pick{layout}, Spread{layout})};
}

}  // namespace bs

#include <bs/autograd/block_sparse_matmul.h>
#include <bs/autograd/saved_tensor.h>
#include <bs/autograd/tape.h>

namespace bs {

namespace {

/// What one operand leaves for backward: its shape, and its data where the partner's gradient,
/// which is made from it, is wanted.
struct Left {
  Shape shape;
  SavedTensor data;
  bool wanted;

  Left(const Variable& x, const Variable& partner)
      : shape(x.shape()),
        data(partner.requires_grad() ? x.data() : Tensor()),
        wanted(x.requires_grad()) {}
};

}  // namespace

SparseVariable sdd(const Variable& a, const Variable& b, const LayoutPtr& layout, Transpose t) {
  const SparseTensor c = sdd(a.data(), b.data(), layout, t);
  auto backward = [layout, t, a = Left(a, b), b = Left(b, a)](const Tensor& dy) {
    const SparseTensor dc{layout, dy};
    return Grads{a.wanted ? sdd_backward_a(dc, b.data, a.shape, t) : Tensor(),
                 b.wanted ? sdd_backward_b(a.data, dc, b.shape, t) : Tensor()};
  };
  return {layout, tape().record("sdd", {a, b}, c.values, std::move(backward))};
}

Variable dsd(const SparseVariable& s, const Variable& b, Transpose t) {
  auto backward = [layout = s.layout, t, s = Left(s.values, b),
                   b = Left(b, s.values)](const Tensor& dc) {
    return Grads{s.wanted ? dsd_backward_s(dc, b.data, layout, s.shape, t) : Tensor(),
                 b.wanted ? dsd_backward_b({layout, s.data}, dc, b.shape, t) : Tensor()};
  };
  return tape().record("dsd", {s.values, b}, dsd(s.data(), b.data(), t), std::move(backward));
}

Variable dds(const Variable& a, const SparseVariable& s, Transpose t) {
  auto backward = [layout = s.layout, t, a = Left(a, s.values),
                   s = Left(s.values, a)](const Tensor& dc) {
    return Grads{a.wanted ? dds_backward_a(dc, {layout, s.data}, a.shape, t) : Tensor(),
                 s.wanted ? dds_backward_s(a.data, dc, layout, s.shape, t) : Tensor()};
  };
  return tape().record("dds", {a, s.values}, dds(a.data(), s.data(), t), std::move(backward));
}

}  // namespace bs

#include <bs/autograd/index_select.h>

#include <bs/autograd/recorded.h>
#include <bs/kernels/index_select.h>

namespace bs {

namespace {

/// The gradient for x of `extent` along the axis; recorded, it selects from what reaches it.
struct Add {
  int axis;
  SavedTensor indices;
  int64_t extent;

  Tensor operator()(const Tensor& dy) const {
    return index_select_backward(dy, axis, indices, extent);
  }
  Variable operator()(const Variable& dy) const;
};

struct Select {
  int axis;
  SavedTensor indices;

  Tensor operator()(const Tensor& x) const { return index_select(x, axis, indices); }
  Variable operator()(const Variable& x) const { return index_select(x, axis, indices.get()); }
};

Variable Add::operator()(const Variable& dy) const {
  return record_linear("index_select_backward", dy, (*this)(dy.data()), Select{axis, indices});
}

}  // namespace

Variable index_select(const Variable& x, int axis, const Tensor& indices) {
  return record_linear("index_select", x, index_select(x.data(), axis, indices),
                       Add{axis, SavedTensor(indices), x.size(axis)});
}

}  // namespace bs

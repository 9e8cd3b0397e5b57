#include <bs/autograd/sort.h>

#include <bs/autograd/gather.h>
#include <bs/autograd/recorded.h>
#include <bs/autograd/view.h>
#include <bs/kernels/fill.h>

namespace bs {

namespace {

/// dy goes to the positions in x. `squeezed`: the axis has disappeared from y.
struct Order {
  SavedTensor indices;
  Shape shape;
  int axis;
  bool squeezed;

  Tensor positions() const { return squeezed ? indices.get().unsqueeze(axis) : indices.get(); }
  Grads operator()(const Tensor& dy) const {
    return {sort_backward(squeezed ? dy.unsqueeze(axis) : dy, positions(), shape, axis)};
  }
  VariableGrads again(const Recorded& r) const {
    const Variable dy = squeezed ? unsqueeze(r.dy(), axis) : r.dy();
    const Variable none(zeros(shape, dy.dtype(), dy.device()));
    return {scatter(none, axis, positions(), dy)};
  }
};

IndexedVariable record(const char* name, const Variable& x, const Indexed& y, int axis,
                       bool squeezed) {
  const int at = normalize_axis(name, axis, x.rank());
  return {
      tape().record(name, {x}, y.values, Order{SavedTensor(y.indices), x.shape(), at, squeezed}),
      y.indices};
}

}  // namespace

IndexedVariable sort(const Variable& x, int axis, bool descending) {
  return record("sort", x, sort(x.data(), axis, descending), axis, false);
}

IndexedVariable topk(const Variable& x, int64_t k, int axis, bool largest) {
  return record("topk", x, topk(x.data(), k, axis, largest), axis, false);
}

IndexedVariable kthvalue(const Variable& x, int64_t k, int axis, bool keepdim) {
  return record("kthvalue", x, kthvalue(x.data(), k, axis, keepdim), axis, !keepdim);
}

IndexedVariable max(const Variable& x, int axis, bool keepdim) {
  return record("max", x, max(x.data(), axis, keepdim), axis, !keepdim);
}

IndexedVariable min(const Variable& x, int axis, bool keepdim) {
  return record("min", x, min(x.data(), axis, keepdim), axis, !keepdim);
}

}  // namespace bs
